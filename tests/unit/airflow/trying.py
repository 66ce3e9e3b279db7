"""The tries of one task against a real storage; Airflow's side is a dict and a few attributes."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow.sdk import DAG

import raysweep as rs
from raysweep.outcome import SweepOutcome, TrialOutcome
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.specs import identity
from raysweep.storage.objects.opening import open_store
from raysweep_airflow import SweepOperator
from raysweep_airflow.tries import Record
from raysweep_airflow.work import Attempt, Try

BASE = "night/sweep/manual__1"


class Store(dict[str, Any]):
    """In place of the task state store, which is a table behind Airflow's API server."""

    def set(self, key: str, value: Any, retention: Any = None) -> None:
        self[key] = value


class Ti:
    """What operators need of a task instance."""

    dag_id, task_id, run_id, map_index = "night", "sweep", "manual__1", -1

    def __init__(self, try_number: int, max_tries: int) -> None:
        self.try_number, self.max_tries = try_number, max_tries


class Tries:
    """The tries of one task, as Airflow numbers them with `retries=2`."""

    def __init__(self, storage: Path, *, forgets: bool = False) -> None:
        self.storage = storage
        self.store = Store()
        self.forgets = forgets
        """Whether Airflow deletes what it keeps of a task after each try."""
        self.number, self.max_tries, self.clears = 0, 2, 0
        self.generation = 1
        self.began_at: datetime | None = None
        """The run's `start_date`."""
        self.context: dict[str, Any] = {}

    def spec(self, **stop: Any) -> rs.SweepSpec:
        return rs.SweepSpec(
            name="flights",
            trainable="examples.quick:quadratic",
            param_space={"x": {"uniform": [0, 1]}},
            metric="loss",
            mode="min",
            stop=stop,
            storage_path=str(self.storage),
        )

    def run(self, spec: rs.SweepSpec | None = None, **options: Any) -> Attempt:
        """The next try."""
        self.number += 1
        if self.forgets:
            self.store.clear()
        with DAG("night", schedule=None):
            operator = SweepOperator(task_id="sweep", spec=self.spec(), **options)
        run = SimpleNamespace(clear_number=self.clears, start_date=self.began_at)
        ti = Ti(self.number, self.max_tries)
        context = {"ti": ti, "task_state_store": self.store, "dag_run": run} | self.context
        self.last = Try(operator, context)
        return self.last.attempt(spec or self.spec())

    def carried_out(self, **options: Any) -> Attempt:
        """The next try, as far as its job's submission."""
        attempt = self.run(**options)
        self.last._carried_out()
        return attempt

    def age(self, by: timedelta) -> None:
        """As if all that has happened had been so long ago."""
        record = dict(self.store["raysweep"])
        for name in ("scheduled_at", "begun_at"):
            record[name] = (datetime.fromisoformat(record[name]) - by).isoformat()
        self.last._remember(Record(**record))

    def clear(self, retries: int = 2) -> None:
        """As Airflow's clear: the retries are counted anew."""
        self.max_tries = self.number + retries
        self.clears += 1

    def end_again(self, key: str, status: Any) -> SweepOutcome:
        """Store how the next job of the same sweep ended."""
        folder = SweepFolder(open_store(str(self.storage)), identity.sweep_id("flights", key))
        folder.archive_outcome()
        self.generation += 1
        return self.end(key, status)

    def end(
        self, key: str, status: Any, *, finished: int = 2, spec: rs.SweepSpec | None = None
    ) -> SweepOutcome:
        """Store how the sweep of this key ended."""
        spec = spec or self.spec()
        sweep_id = identity.sweep_id("flights", key)
        outcome = SweepOutcome(
            sweep_id=sweep_id,
            name="flights",
            key=key,
            status=status,
            metric="loss",
            mode="min",
            counts={"completed": finished},
            best=TrialOutcome(trial_id="t", number=0, state="completed", score=1.0) if finished else None,
            started_at=0,
            ended_at=1,
            generation=self.generation,
            spec_digest=spec.placed().digest(),
        )
        folder = SweepFolder(open_store(str(self.storage)), sweep_id)
        placed = spec.placed()
        folder.write_spec_if_absent(
            SweepRecord(digest=placed.digest(), key=key, seed=7, spec=placed.to_dict())
        )
        folder.write_outcome_if_absent(outcome)
        stored = folder.read_outcome()  # it knows where it lies
        assert stored is not None
        return stored
