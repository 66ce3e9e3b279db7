"""A PyTorch network with checkpoints, for population based training: trials swap weights as they learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

EPOCHS = 12


def train(config: Mapping[str, Any]) -> None:
    """Trains on handwritten digits; reports `accuracy` and `loss` after each epoch, with a checkpoint.

    A trial that takes over another one's checkpoint continues from its weights, with a config of its own.
    """
    import torch
    from sklearn.datasets import load_digits

    import raysweep as rs

    torch.manual_seed(0)
    torch.set_num_threads(1)
    pixels, digits = load_digits(return_X_y=True)
    inputs = torch.tensor(pixels / 16, dtype=torch.float32)
    labels = torch.tensor(digits)
    seen, unseen = slice(0, 1300), slice(1300, None)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=config["momentum"])
    epoch, checkpoint = 0, rs.get_checkpoint()
    if checkpoint is not None:
        with checkpoint as folder:
            state = torch.load(folder / "state.pt", weights_only=True)
        model.load_state_dict(state["model"])
        epoch = state["epoch"]
    while epoch < EPOCHS:
        for batch in torch.randperm(1300).split(65):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs[seen][batch]), labels[seen][batch]).backward()
            optimizer.step()
        epoch += 1
        with torch.no_grad():
            scores = model(inputs[unseen])
        accuracy = (scores.argmax(1) == labels[unseen]).float().mean().item()
        loss = torch.nn.functional.cross_entropy(scores, labels[unseen]).item()
        with rs.new_checkpoint() as folder:
            torch.save({"model": model.state_dict(), "epoch": epoch}, folder / "state.pt")
            rs.report({"accuracy": accuracy, "loss": loss, "epoch": epoch}, checkpoint=folder)
