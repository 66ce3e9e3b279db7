"""Trainables for the seam between core and shell."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import raysweep as rs
from tests.engine.trainables import note, start

Config = dict[str, Any]


def short_then_long(config: Config) -> None:
    """Trial 0 is done at once; the others take long over the same three reports."""
    context = start(config)
    for step in range(1, 4):
        if context.number:
            time.sleep(config["long_s"] / 3)
        rs.report({"loss": 1.0 / step})


def one_long(config: Config) -> dict[str, float]:
    """Trial 1 takes long."""
    if start(config).number:
        time.sleep(config["long_s"])
    return {"loss": 1.0}


def saves(config: Config) -> None:
    """One report with a checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model").write_text("model")
        rs.report({"loss": 1.0}, checkpoint=folder)


def grow_first(config: Config) -> dict[str, float]:
    """Trial 0 takes `config["gib"]`, and is ended for it."""
    if start(config).number == 0:
        held = bytearray(int(config["gib"] * 2**30))
        for place in range(0, len(held), 4096):
            held[place] = 1
        time.sleep(30)
    return {"loss": 1.0}


def stubborn_first(config: Config) -> None:
    """Trial 0 does not end when it is asked to, nor when it is interrupted."""
    context = start(config)
    for step in range(1, 4):
        rs.report({"loss": 1.0 / step})
    while context.number == 0:
        try:
            time.sleep(60)
        except BaseException:  # noqa: BLE001  that is what makes it stubborn
            continue


def sleeps(config: Config) -> dict[str, float]:
    """Hears nothing for `config["long_s"]`."""
    start(config)
    time.sleep(config["long_s"])
    return {"loss": 1.0}


def short_but_two(config: Config) -> dict[str, float]:
    """Trial 10 takes long; trial 11 fails once, at once; the others are short."""
    context = start(config)
    if context.number == 10:
        time.sleep(config["long_s"])
    elif context.number == 11 and Path(config["log"]).read_text().count("start 11 ") == 1:
        raise ValueError("once")
    return {"loss": 1.0}


def never_ends(config: Config) -> None:
    """Whatever is asked of it."""
    note(config, "stubborn", os.getpid())
    while True:
        try:
            time.sleep(60)
        except BaseException:  # noqa: BLE001  that is what makes it stubborn
            continue


class LoadsOnce:
    """A trainable that a second process cannot load, until somebody writes `again` into the marker.

    Three reports; `is_stubborn`: the first trial does not end by itself then.
    """

    def __init__(self, marker: Path, *, is_stubborn: bool) -> None:
        self.marker = marker
        self.is_stubborn = is_stubborn

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        if self.marker.exists() and self.marker.read_text() == "loaded":
            raise RuntimeError("it can be loaded only once")
        self.is_stubborn = self.is_stubborn and not self.marker.exists()
        if not self.marker.exists():
            self.marker.write_text("loaded")

    def __call__(self, config: Config) -> None:
        for step in range(1, 4):
            rs.report({"loss": 1.0 / step})
        note(config, "done", rs.get_context().number)
        if self.is_stubborn:
            never_ends(config)
