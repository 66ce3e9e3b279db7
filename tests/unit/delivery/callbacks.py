"""Callbacks of the user's own, good and bad ones, for the tests that name them by import path."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from raysweep.hooks import Callback, SinkDownError


class Options(BaseModel):
    path: str
    does: str = ""
    at: int = 5


class Writes(Callback):
    """Writes the ids of its events to a file, a line each; `does` one odd thing at event number `at`."""

    Options = Options

    def __init__(self, options: Options, setup: Any) -> None:
        self.options, self.setup, self.seen = options, setup, 0

    def take(self, event: Any) -> None:
        self.seen += 1
        mark = Path(f"{self.options.path}.done")
        if self.seen == self.options.at and not mark.exists():
            if self.options.does != "always":
                mark.touch()
            self.misbehave()
        with open(self.options.path, "a") as file:
            file.write(f"{event.id}\n")

    def misbehave(self) -> None:
        match self.options.does:
            case "raise":
                raise ValueError("once")
            case "always":
                self.seen -= 1
                raise ValueError("always")
            case "exit":
                raise SystemExit(3)
            case "down":
                raise SinkDownError("not now")
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "leave":
                os._exit(7)
            case "hang":
                time.sleep(600)

    on_sweep_start = on_trial_start = on_report = on_checkpoint = on_trial_end = on_sweep_end = take


class HasNoHook(Callback):
    def __init__(self, options: Any, setup: Any) -> None:
        pass


NOT_A_CLASS = len
