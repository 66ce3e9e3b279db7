"""A program that calls Ray Tune once for each of its arguments, as a task of either orchestrator runs it."""

from __future__ import annotations

from typing import Final

PROGRAM: Final = """
import os, sys, time
from ray import tune

def train(config):
    with open(os.environ["MARKS"], "a") as file:
        file.write(f"{config['x']} ")
    if config["x"] == 2 and open(os.environ["MARKS"]).read().count("2 ") == int(os.environ.get("DIES_AT", 0)):
        time.sleep(1)  # the trial before is stored
        os.kill(os.getpid(), 9)
    return {"loss": float(config["x"])}

if __name__ == "__main__":
    for name in sys.argv[1:]:
        grid = tune.Tuner(
            train,
            param_space={"x": tune.grid_search([3, 2, 1])},
            tune_config=tune.TuneConfig(metric="loss", mode="min"),
            run_config=tune.RunConfig(name=name),
        ).fit()
        print("best", name, grid.get_best_result().config)
    sys.exit(0)
"""
"""In MARKS each trial writes its `x`. The trial of `x=2` that is number DIES_AT kills the process."""
