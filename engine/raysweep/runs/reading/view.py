"""The storage's view of one sweep or training run, for those who look at it from outside the cluster."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import orjson

from raysweep.outcome import Cancellation, SweepOutcome, SweepProgress, TrainOutcome
from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership.lease import renew_lease, whoami
from raysweep.runs.ownership.reopening import NOT_CONTINUED, check_same
from raysweep.runs.training import RunFolder
from raysweep.specs import AnyRequest, Kind, SweepSpec, TrainSpec
from raysweep.specs.continuing import Continue
from raysweep.storage.objects.opening import open_store

Outcome = SweepOutcome | TrainOutcome


class RunView:
    """`<storage_path>/<run_id>/`, seen from outside. Each call may block, and raises StorageError."""

    def __init__(self, kind: Kind, storage_path: str, run_id: str) -> None:
        self.store = open_store(storage_path)
        self.run_id = run_id
        self._folder = SweepFolder(self.store, run_id)
        self._sweep = self._folder if kind == "sweep" else None
        self._train = RunFolder(self.store, run_id)

    @property
    def uri(self) -> str:
        """The address of the run."""
        return f"{self.store.url}/{self.run_id}"

    def outcome(self) -> Outcome | None:
        """The outcome of the run; None before its end."""
        return self._sweep.read_outcome() if self._sweep is not None else self._train.read_outcome()

    def progress(self) -> SweepProgress | None:
        """Its last heartbeat."""
        return self._folder.read_progress()

    def check_same(
        self, request: AnyRequest, outcome: Outcome | None, *, continuing: Continue = NOT_CONTINUED
    ) -> bool:
        """Is what is there what was asked for? Returns whether it is to continue although it has an outcome.

        Raises: SpecChangedError with one line for each difference.
        """
        spec = request.spec
        if self._sweep is not None and isinstance(spec, SweepSpec):
            ended = outcome if isinstance(outcome, SweepOutcome) else None
            return check_same(self._sweep, spec, ended, continuing=continuing)
        if isinstance(spec, TrainSpec):
            self._train.check_spec(spec)
        return False

    def has_spec(self) -> bool:
        """True if its spec is there: a driver of it has started."""
        name = "sweep.json" if self._sweep is not None else "train.json"
        return self.store.exists(f"{self.run_id}/{name}")

    def spec(self) -> SweepSpec | TrainSpec | None:
        """The spec of its start; None before its driver has stored that."""
        if self._sweep is None:
            return self._train.read_spec()
        record = self._sweep.read_spec()
        return SweepSpec.from_any(dict(record.spec)) if record is not None else None

    def has(self, request: AnyRequest) -> bool:
        """True if a training run with this very spec was begun here. Raises: StorageError."""
        return isinstance(request.spec, TrainSpec) and self._train.has(request.spec)

    def put_aside(self, outcome: Outcome) -> None:
        """Archive this outcome, if it still is the newest: the sweep continues, and will have another."""
        newest = self._sweep.read_outcome() if self._sweep is not None else None
        if newest is not None and newest == outcome and self._sweep is not None:
            self._sweep.archive_outcome()

    def newest_job(self) -> int:
        """The highest number of a job that a cluster is known to have taken; 0 for none."""
        names = (info.key.rpartition("/")[2] for info in self.store.list(f"{self.run_id}/jobs"))
        stems = (name.removesuffix(".json") for name in names)
        return max((int(stem) for stem in stems if stem.isdigit()), default=0)

    def called_off_job(self) -> int:
        """The highest number of a job that was asked to end; that number is given to no other. 0 for none."""
        asked = self.cancellation()
        return asked.number if asked is not None else 0

    def cancellation(self) -> Cancellation | None:
        """The newest request to cancel it, whether it was followed or not."""
        return self._folder.read_cancellation()

    def note_job(self, number: int, job_id: str, address: str) -> None:
        """Remember, for when the cluster forgets, that a cluster has taken this job; never before it has."""
        record = {"format": 1, "job_id": job_id, "address": address, "at": time.time()}
        self.store.put_if_absent(f"{self.run_id}/jobs/{number:06d}.json", orjson.dumps(record))

    def keep_step(self, fields: Mapping[str, Any]) -> None:
        """Keep what an orchestrator's step must know at its next try, in case the orchestrator forgets it."""
        self.store.put(self._step_key, orjson.dumps(dict(fields)))

    def kept_step(self) -> Mapping[str, Any] | None:
        """The step that `keep_step` kept last; None for nothing that can be read."""
        try:
            found = orjson.loads(self.store.get(self._step_key) or b"")
        except orjson.JSONDecodeError:
            return None
        return found if isinstance(found, dict) else None

    @property
    def _step_key(self) -> str:
        return f"{self.run_id}/step.json"

    def renew_lease(self, ttl_s: float) -> None:
        """Record that this process still waits for it."""
        renew_lease(self.store, self.run_id, ttl_s, whoami())

    def ask_to_cancel(self, reason: str, by: str, *, number: int = 0) -> None:
        """Leave a request to cancel for the process that runs it, wherever that is.

        Args:
            reason: Why.
            by: Who asks.
            number: The job that is meant: also one that has not started yet, and never a later one. 0:
                the one that runs it at this moment.
        """
        found = self._folder.read_cancellation()
        if found is not None and number and found.number > number:
            return  # a later job is to end: that is not taken back by who is late
        self._folder.write_cancellation(Cancellation(at=time.time(), by=by, reason=reason, number=number))

    def look_again(self) -> None:
        """List its folder: that makes file systems that remember what was not there ask their server."""
        self.store.list_folders(self.run_id)
