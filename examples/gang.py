"""A line, trained by all ranks of a gang together: see `gang.yaml`, and the guide to distributed trials."""

from __future__ import annotations

from typing import Any

import raysweep as rs


def train(config: dict[str, Any]) -> None:
    """Each rank has other data; `DistributedDataParallel` keeps their models equal."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    line, begin = torch.nn.Linear(4, 1), 0
    checkpoint = rs.get_checkpoint()
    if checkpoint is not None:
        with checkpoint as folder:
            state = torch.load(folder / "line.pt", weights_only=True)
            line.load_state_dict(state["line"])
            begin = state["epoch"]
    context = rs.get_context()
    torch.manual_seed(context.seed + 1000 * context.world_rank)
    model = DistributedDataParallel(line)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    for epoch in range(begin, config["epochs"]):
        for _ in range(20):
            x = torch.randn(64, 4)
            loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.distributed.all_reduce(loss.detach_())
        with rs.new_checkpoint() as folder:
            torch.save({"line": line.state_dict(), "epoch": epoch + 1}, folder / "line.pt")
            rs.report({"loss": loss.item() / context.world_size}, checkpoint=folder)
