"""A line, trained by a Ray Train run that each trial starts: see `train_run.yaml`, and the guide.

Nothing in it is raysweep's: the same driver runs under Ray Tune, and `run` under Ray Train alone.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any


def train(config: dict[str, Any]) -> None:
    """What a trial runs: it starts the workers, and waits for them."""
    from ray.train import ScalingConfig
    from ray.train.torch import TorchTrainer

    TorchTrainer(run, train_loop_config=config, scaling_config=ScalingConfig(num_workers=2)).fit()


def run(config: dict[str, Any]) -> None:
    """What each worker runs; `prepare_model` keeps their models equal."""
    import torch
    from ray import train
    from ray.train.torch import prepare_model

    line, begin = torch.nn.Linear(4, 1), 0
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            state = torch.load(Path(folder) / "line.pt", weights_only=True)
            line.load_state_dict(state["line"])
            begin = state["epoch"]
    rank = train.get_context().get_world_rank()
    torch.manual_seed(rank)
    model = prepare_model(line)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    for epoch in range(begin, config["epochs"]):
        for _ in range(config["batches"]):
            x = torch.randn(64, 4)
            loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with tempfile.TemporaryDirectory() as folder:
            torch.save({"line": line.state_dict(), "epoch": epoch + 1}, Path(folder) / "line.pt")
            made = train.Checkpoint.from_directory(folder) if rank == 0 else None
            train.report({"loss": loss.item(), "epoch": epoch + 1}, checkpoint=made)
