"""The reports of a training so far, bounded, stored with the list of checkpoints.

The history is in the same object as Ray Train's list of checkpoints, from which a run resumes. So the
history always ends at the checkpoint that the run resumes from. Workers that start again repeat the
reports after it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import orjson

from raysweep.errors import StorageError
from raysweep.outcome import DataDigest, TrainReport
from raysweep.storage.formats import OTHER_FIX, other_format

FORMAT: Final = 1
"""Of what is kept in the list of checkpoints."""
MAX_ROWS: Final = 1000
"""Of more reports every second one is kept, then every fourth, and so on; the last one always."""
MAX_ROW_BYTES: Final = 1024
"""Of a larger report only what fits is kept, in its order."""
_FIELD: Final = "raysweep_history"  # Ray Train reads over a field that it does not know


class History:
    """The reports of one run, of all its attempts.

    `data`: what the spec's data were when the run, or what it resumes from, began.
    """

    def __init__(self) -> None:
        self._rows: list[TrainReport] = []
        self._every = 1
        self._last: TrainReport | None = None
        self._stored: dict[str, Any] = {}
        self.data: tuple[DataDigest, ...] = ()

    def add(self, metrics: Mapping[str, Any], at: float, workers: int | None) -> None:
        """Take the next report: rank 0's metrics."""
        iteration = self.iteration + 1
        row = TrainReport(iteration=iteration, at=at, metrics=fitting(metrics), workers=workers)
        self._last = row
        if (iteration - 1) % self._every == 0:
            self._rows.append(row)
        if len(self._rows) > MAX_ROWS:
            self._every *= 2
            self._rows = [each for each in self._rows if (each.iteration - 1) % self._every == 0]

    @property
    def iteration(self) -> int:
        """The number of the newest report; 0: there is none."""
        return 0 if self._last is None else self._last.iteration

    @property
    def reports(self) -> tuple[TrainReport, ...]:
        """What is kept, oldest first."""
        last = self._last
        is_kept = last is None or (self._rows and self._rows[-1].iteration == last.iteration)
        return (*self._rows,) if is_kept or last is None else (*self._rows, last)

    def seal(self, text: str) -> str:
        """Ray Train's list of checkpoints with this history in it; the newest one is of the last report."""
        self._stored = {
            "format": FORMAT,
            "every": self._every,
            "rows": [each.model_dump(mode="json") for each in self.reports],
            "data": [each.model_dump(mode="json") for each in self.data],
        }
        return json.dumps({**json.loads(text), _FIELD: self._stored})

    def rewind(self) -> None:
        """The workers begin anew from the newest checkpoint: what came after it is reported again."""
        self._restore(self._stored)

    def resume(self, data: bytes | None) -> None:
        """Continue from what an earlier attempt left in its list of checkpoints (None: it left none).

        Raises: StorageError: The history in the list has another format.
        """
        self._stored = json.loads(data).get(_FIELD, {}) if data is not None else {}
        if self._stored and self._stored.get("format") != FORMAT:
            problem = other_format(self._stored.get("format"), FORMAT, name=f"{_FIELD}.format")
            raise StorageError("the list of checkpoints of the training run", problem, OTHER_FIX)
        self._restore(self._stored)
        self.data = tuple(DataDigest.model_validate(each) for each in self._stored.get("data", ()))

    def _restore(self, stored: Mapping[str, Any]) -> None:
        reports = [TrainReport.model_validate(each) for each in stored.get("rows", ())]
        self._every = stored.get("every", 1)
        self._last = reports[-1] if reports else None
        self._rows = [each for each in reports if (each.iteration - 1) % self._every == 0]


def fitting(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of a report, as far as `MAX_ROW_BYTES` go."""
    row = TrainReport(iteration=1, at=0.0, metrics=dict(metrics))
    sizes = {
        name: len(name) + len(orjson.dumps(value))
        for name, value in row.model_dump(mode="json")["metrics"].items()
    }
    if sum(sizes.values()) <= MAX_ROW_BYTES:
        return dict(metrics)
    kept: dict[str, Any] = {}
    left = MAX_ROW_BYTES
    for name, size in sizes.items():
        if size <= left:
            kept[name] = metrics[name]
            left -= size
    return kept
