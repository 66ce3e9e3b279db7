"""The step counter of a program: what a resumed program reports again, and counters that are not one.

Reports up to the one that a checkpoint came with are made already, so a resumed program's are left out. A
program whose first step lies before what the checkpoint holds counts from the start again: then nothing is.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Final

from raysweep.programs.doubts import Doubts
from raysweep.programs.readers.base import STEPS, Record, step_of

STEP_FILE: Final = "raysweep-step.json"
"""In a stored checkpoint: the step of the report that it came with, and the step up to which it holds the
training (`held`); removed before a program gets it back."""
_COUNTERS: Final = ("step", "global_step")
"""Of these a writer has one value a report; several reports of an epoch are usual."""
_WHY: Final = "two writers, or a counter that starts again, under one name"


class Steps:
    """The steps of one attempt, which begins from `restored`."""

    def __init__(self, restored: Path | None, doubts: Doubts) -> None:
        self._doubts = doubts
        self._behind, self._held = _take(restored)
        self._seen: set[float] = set()
        self._last: dict[str, float] = {}
        """The step of each metric's last report."""

    def is_repeated(self, record: Record) -> bool:
        """True if the record was reported before the checkpoint that the attempt began from."""
        step = step_of(record)
        if step is None:
            return False
        if not self._seen and self._held is not None and step < self._held:
            text = "after a retry from a checkpoint the step starts again, so all reports count"
            self._doubts.say(f"{text}: a program that resumes continues its step")
            self._behind = None
        self._seen.add(step)
        self._look_back(record, step)
        return self._behind is not None and step <= self._behind

    def _look_back(self, record: Record, step: float) -> None:
        for name in record.keys() - set(STEPS):
            last = self._last.get(name)
            self._last[name] = step
            if last is not None and step < last:
                self._doubts.say(f"reports of {name!r} go back to an earlier step: {_WHY}")
            elif step == last and any(counter in record for counter in _COUNTERS):
                self._doubts.say(f"reports of {name!r} repeat a step: {_WHY}")

    def write(self, checkpoint: Path, step: float, number: int | None) -> None:
        """Add the file of a checkpoint that a report comes with; `number` ends the folder's name."""
        held = number if number in self._seen and number < step else step
        (checkpoint / STEP_FILE).write_text(json.dumps({"step": step, "held": held}), encoding="utf-8")


def _take(restored: Path | None) -> tuple[float | None, float | None]:
    """The steps in the file of a checkpoint; the program does not see it."""
    if restored is None:
        return None, None
    file = restored / STEP_FILE
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        step = float(found["step"])
        return step, float(found.get("held", step))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None, None
    finally:
        with suppress(OSError):
            file.unlink()
