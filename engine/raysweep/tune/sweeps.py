"""The sweeps of a program that calls Ray Tune: from a tuner to its results."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from raysweep.errors import SpecError
from raysweep.from_tune.naming import registered
from raysweep.from_tune.objects import with_objects
from raysweep.from_tune.tuner import Reading, read_tuner
from raysweep.runs.ownership.replay import newest_spec
from raysweep.runs.reading.naming.lookup import find_sweep
from raysweep.stored import StoredSweep
from raysweep.tune.results import analysis_of

_RECORD: Final = "raysweep.json"
"""In the folder of an experiment: which sweep it is."""


class Sweeps:
    """Runs tuners as sweeps: one for each block of `running`."""

    def __init__(
        self,
        key: str,
        ignore: Collection[str],
        fields: Mapping[str, Any],
        run: Callable[..., StoredSweep],
    ) -> None:
        self._key = key
        self._ignore = ignore
        self._fields = fields
        self._run_sweep = run
        self._begun: Counter[str] = Counter()
        self.outcomes: list[StoredSweep] = []

    def fit(self, tuner: Any) -> Any:
        """Run a tuner to its end; returns an ExperimentAnalysis."""
        reading = read_tuner(tuner, self._ignore, self._fields)
        name = reading.spec.name
        self._begun[name] += 1
        number = self._begun[name]
        return self._run(tuner, reading, self._key if number == 1 else f"{self._key}-{number}")

    def resume(self, tuner: Any, path: str, errored: str) -> Any:
        """Continue the sweep of an experiment's folder; its failed trials too, where that is asked for."""
        if errored == "RESTART":
            raise SpecError(
                "restart_errored",
                "failed trials continue from their checkpoints, and do not start anew",
                "use resume_errored=True",
            )
        record = _read_record(Path(path))
        folder = find_sweep(record["uri"], None)
        stored = folder.read_spec()
        if stored is None:
            raise SpecError("path", f"the sweep of {path!r} is no longer stored", "run the tuner again")
        held = tuner._local_tuner
        objects = read_tuner(tuner, ("tuner",), self._fields).objects if held.param_space else {}
        trainable = registered(held.trainable)
        spec = newest_spec(folder, stored).replace(
            trainable=with_objects(trainable, objects) if objects else trainable
        )
        held._tune_config.metric = spec.metric or None
        held._tune_config.mode = spec.mode if spec.metric else None
        reading = Reading(spec, objects)
        return self._run(tuner, reading, stored.key, retry="failed" if errored == "RESUME" else None)

    def _run(self, tuner: Any, reading: Reading, key: str, **how: Any) -> Any:
        outcome = self._run_sweep(reading.spec, key=key, **how)
        self.outcomes.append(outcome)
        run_config = tuner._local_tuner._run_config
        if run_config.storage_filesystem is None and "://" not in str(run_config.storage_path):
            _write_record(Path(run_config.storage_path, run_config.name), outcome)
        return analysis_of(tuner._local_tuner, reading, outcome)


def _write_record(folder: Path, outcome: StoredSweep) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _RECORD).write_text(json.dumps({"sweep_id": outcome.sweep_id, "uri": outcome.uri}))


def _read_record(folder: Path) -> dict[str, Any]:
    file = folder.expanduser() / _RECORD
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        problem = f"{str(file)!r} cannot be read as the record of a sweep: {error}"
        raise SpecError("path", problem, "give the folder of an experiment that ran in running(…)") from None
    if not isinstance(found, dict) or not isinstance(found.get("uri"), str):
        raise SpecError("path", f"{str(file)!r} is damaged: it has no uri", "run the tuner again")
    return found
