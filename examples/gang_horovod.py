"""Trains a small model with Horovod, as it would be written without raysweep but for the reports."""

from __future__ import annotations

from typing import Any

import horovod.torch as hvd
import torch

import raysweep as rs


def train(config: dict[str, Any]) -> None:
    """Called in each worker, with the same config and seed."""
    hvd.init()
    data = torch.Generator().manual_seed(hvd.rank())  # each worker has data of its own
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    begin, epochs = 0, config.get("epochs", 3)
    if (found := rs.get_checkpoint()) is not None:
        with found as folder:
            state = torch.load(folder / "model.pt", weights_only=True)
        model.load_state_dict(state["model"])
        begin = state["epoch"]
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    for epoch in range(begin, epochs):
        for _ in range(5):
            x = torch.randn(64, 4, generator=data)
            loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with rs.new_checkpoint() as folder:
            torch.save({"model": model.state_dict(), "epoch": epoch + 1}, folder / "model.pt")
            rs.report({"loss": loss.item(), "weight": model.weight[0, 0].item()}, checkpoint=folder)
