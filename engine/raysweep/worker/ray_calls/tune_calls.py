"""`ray.tune.report`, `ray.train.report` and their siblings in a trial: `raysweep.report` and its own.

| theirs | here |
|---|---|
| `report(metrics, checkpoint=…)` | `raysweep.report`; metrics in metrics are named `outer/inner` |
| `report({"done": True})` | the trial ends with this report, completed |
| `get_checkpoint()` | `raysweep.get_checkpoint().to_ray()` |
| `get_context()` | ids, resources, a folder of the attempt's own |

Nothing of Ray is imported for it. A trial that imports Ray Tune finds them in place.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

from raysweep import trial as trial_api
from raysweep.documents.code.tune_objects import STOP_RULES
from raysweep.errors import TrialStopped

DONE: Final = "done"


class TrialDone(TrialStopped):
    """The trial has said itself that it is done."""


def flatten(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a/b": 1}`, at any depth; lists stay."""
    if not any(isinstance(value, dict) for value in metrics.values()):
        return dict(metrics)
    flat: dict[str, Any] = {}
    for name, value in metrics.items():
        if isinstance(value, dict):
            flat.update((f"{name}/{inner}", each) for inner, each in flatten(value).items())
        else:
            flat[name] = value
    return flat


class StopRules:
    """The rules by which reports of the trial in this process end it."""

    rules: ClassVar[tuple[Callable[[str, dict[str, Any]], bool], ...]] = ()
    begun_at: ClassVar[float] = 0.0
    reports: ClassVar[int] = 0

    @classmethod
    @contextmanager
    def of(cls, trainable: Any) -> Iterator[None]:
        """While this trainable runs, its rules judge."""
        cls.rules = getattr(trainable, STOP_RULES, ())
        cls.begun_at, cls.reports = time.monotonic(), 0
        try:
            yield
        finally:
            cls.rules = ()

    @classmethod
    def end(cls, metrics: dict[str, Any]) -> bool:
        """True if a rule ends the trial with this report."""
        if not cls.rules:
            return False
        cls.reports += 1
        context = trial_api.get_context()
        filled = {
            "trial_id": context.trial_id,
            "training_iteration": context.iteration + cls.reports,
            "time_total_s": time.monotonic() - cls.begun_at,
            DONE: False,
        }
        return any(rule(context.trial_id, {**filled, **metrics}) for rule in cls.rules)


def report_flat(metrics: dict[str, Any], checkpoint: Any, *, wait: bool = False) -> None:
    """`raysweep.report` as Ray names metrics; a report that says `done` is the trial's last.

    Raises: TrialDone. As `raysweep.report`.
    """
    is_plain = isinstance(metrics, dict)
    trial_api.report(flatten(metrics) if is_plain else metrics, checkpoint, wait=wait)
    if is_plain and (metrics.get(DONE) or StopRules.end(metrics)):
        raise TrialDone("done")


class Calls:
    """The trial that runs here, as Ray's calls see it."""

    def __init__(self) -> None:
        self._folder: Path | None = None

    @property
    def experiment(self) -> str:
        return trial_api.get_context().sweep_id

    @property
    def trial_id(self) -> str:
        return trial_api.get_context().trial_id

    @property
    def resources(self) -> dict[str, float]:
        return dict(trial_api.get_context().resources)

    @property
    def rank(self) -> int:
        return trial_api.get_context().rank

    @property
    def local_rank(self) -> int:
        return trial_api.get_context().local_rank

    @property
    def node_rank(self) -> int:
        return trial_api.get_context().node_rank

    @property
    def world_size(self) -> int:
        return trial_api.get_context().world_size

    def folder(self) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="raysweep-trial-"))
        return self._folder

    def report(self, metrics: dict[str, Any], checkpoint: Any) -> None:
        report_flat(metrics, checkpoint)

    def get_checkpoint(self) -> Any:
        found = trial_api.get_checkpoint()
        return None if found is None else found.to_ray()

    def close(self) -> None:
        """The attempt is over."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
