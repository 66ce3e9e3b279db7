"""A torch model with a checkpoint an epoch: killed with -9 in the middle, and run again."""

import sys
import time
from pathlib import Path

import torch

import raysweep as rs

EPOCHS = 12


def train(config):
    torch.manual_seed(0)
    inputs = torch.randn(256, 8)
    targets = inputs.sum(dim=1, keepdim=True)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    first = 0
    if checkpoint := rs.get_checkpoint():
        with checkpoint as folder:
            saved = torch.load(folder / "state.pt")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["epoch"] + 1
    for epoch in range(first, EPOCHS):
        for _ in range(20):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
        with Path(config["log"]).open("a") as log:
            log.write(f"{config['lr']:.6f} {epoch} {loss.item():.6f}\n")
        with rs.new_checkpoint() as folder:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            torch.save(state, folder / "state.pt")
            rs.report({"loss": loss.item(), "epoch": epoch}, checkpoint=folder)
        time.sleep(config["pause"])


if __name__ == "__main__":
    outcome = rs.run_sweep(
        rs.SweepSpec(
            name="resume",
            trainable=train,
            param_space={
                "lr": {"loguniform": [1e-3, 1e-2]},
                "log": str(Path("epochs.log").resolve()),
                "pause": float(sys.argv[1]),
            },
            metric="loss",
            mode="min",
            num_samples=2,
            seed=5,
            storage_path="results",
        ),
        key="monday",
    )
    print(outcome.status, [len(trial.attempts) for trial in outcome.trials])
