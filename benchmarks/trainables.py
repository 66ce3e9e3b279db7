"""The work of the benchmarks, for raysweep and for its peers: the same body for all."""

from __future__ import annotations

import os
import time
from typing import Any

Config = dict[str, Any]


def noop(config: Config) -> dict[str, float]:
    """One number."""
    return {"loss": config["x"]}


def sleep(config: Config) -> dict[str, float]:
    """Work that takes `config["seconds"]`."""
    time.sleep(config["seconds"])
    return {"loss": config["seconds"]}


def talk(config: Config) -> dict[str, float]:
    """Print `config["lines"]` lines of 100 bytes."""
    for number in range(config["lines"]):
        print(f"{number:099d}")
    return {"loss": config["x"]}


def write(config: Config) -> dict[str, float]:
    """Write them as C code would, or a child process."""
    for number in range(config["lines"]):
        os.write(1, b"%099d\n" % number)
    return {"loss": config["x"]}


def report(config: Config) -> None:
    """`config["reports"]` reports in a tight loop, to raysweep."""
    import raysweep as rs

    for step in range(config["reports"]):
        rs.report({"loss": 1.0 / (step + 1), "step": step})


def report_to_tune(config: Config) -> None:
    """The same to Ray Tune."""
    from ray import tune

    for step in range(config["reports"]):
        tune.report({"loss": 1.0 / (step + 1), "step": step})


def logged(config: Config) -> dict[str, float]:
    """Takes `config["seconds"]`, and appends a line at its start and its end: `number event time`."""
    note(config, "start")
    time.sleep(config["seconds"])
    note(config, "end")
    return {"loss": float(config["number"])}


def note(config: Config, event: str) -> None:
    """One line, in one write: lines of several processes do not mix."""
    line = f"{config['number']} {event} {time.time()}\n".encode()
    file = os.open(config["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, line)
    os.close(file)
