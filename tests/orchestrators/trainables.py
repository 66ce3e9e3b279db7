"""What the scenarios run: trials, and a training, that note in a file what they do."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import raysweep as rs

Config = dict[str, Any]


def note(config: Config, *words: object) -> None:
    """One line, in one write: lines of several processes do not mix."""
    with open(config["log"], "ab", buffering=0) as file:
        file.write((" ".join(map(str, words)) + "\n").encode())


def trial(config: Config) -> None:
    """`steps` reports, a pause before each; the loss of the best trial is the smallest x."""
    number = rs.get_context().number
    note(config, "start", number)
    for step in range(1, config.get("steps", 1) + 1):
        time.sleep(config.get("pause", 0.0))
        rs.report({"loss": config["x"], "step": step})
    note(config, "end", number)


def waiting(config: Config) -> None:
    """One report; a trial whose x is below `below` waits for the file `go` first."""
    number = rs.get_context().number
    note(config, "start", number)
    while config["x"] < config["below"] and not Path(config["go"]).exists():
        time.sleep(0.1)
    rs.report({"loss": config["x"]})
    note(config, "end", number)


def raising(config: Config) -> None:
    """A mistake in user code, in each trial."""
    note(config, "start", rs.get_context().number)
    raise ValueError("the features are missing")


def train(config: Config) -> None:
    """The full-scale step: notes the x that it was given; `train_pause` makes it last."""
    note(config, "train", config["x"])
    until = time.monotonic() + config.get("train_pause", 0.0)
    while time.monotonic() < until:
        time.sleep(0.1)
    rs.report({"x": config["x"]})
    note(config, "trained", config["x"])


def lines(log: Path) -> list[list[str]]:
    """What was noted, each line split at its spaces."""
    return [line.split() for line in log.read_text().splitlines()]
