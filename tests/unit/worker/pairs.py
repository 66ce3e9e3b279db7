"""Attempts one after the other in this process, as a warm worker runs them, and all that they say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from raysweep import messages as msg
from raysweep.documents.stored_paths import to_uri
from raysweep.messages import End, FromWorker, Job
from raysweep.storage.checkpoints.store import restore_uri
from raysweep.testing.trials import RecordingLink
from raysweep.worker.process.leftovers import Leftovers
from raysweep.worker.runner import run_attempt
from raysweep.worker.shell import WorkerShell
from raysweep.worker.sweep_info import SweepPlace

Trainable = Callable[[dict[str, Any]], Any]


class Worker(RecordingLink):
    """One warm worker without Ray, and the `Link` that it talks on."""

    def __init__(self, storage: Path, *, can_replace: bool = True, has_gpus: bool = False) -> None:
        super().__init__()
        self.rows: dict[int, list[dict[str, Any]]] = defaultdict(list)
        self.said: list[FromWorker] = []
        self._place = SweepPlace(sweep_id="pairs", storage_path=str(storage), resources={})
        self._leftovers = Leftovers(can_replace=can_replace, has_gpus=has_gpus)
        self._shell = WorkerShell(self)
        self.listen(self._shell.take, self._shell.lose_link)

    def run(self, *trainables: Trainable, config: dict[str, Any] | None = None, seed: int = 1) -> None:
        """Each as a trial of its own; they are numbered from 0 on."""
        for trainable in trainables:
            number = len(self.ends)
            self.hand(number, config, seed)
            assert self.has_next(), self.said
            job = self._shell.next_job()
            assert job is not None
            run_attempt(trainable, job, self._place, self._shell, leftovers=self._leftovers)

    def hand(self, number: int, config: dict[str, Any] | None = None, seed: int = 1) -> None:
        """Give it a trial, which it is to run once `next_job` is asked."""
        self._take([Job(trial=number, attempt=1, config=config or {}, seed=seed)])

    def has_next(self) -> bool:
        """Whether it would begin one now."""
        return self._shell._next is not None

    @property
    def ends(self) -> list[End]:
        return [
            message
            for message in self.said
            if isinstance(message, msg.TrialReturned | msg.TrialStopped | msg.TrialFailed)
        ]

    def losses(self, trial: int) -> list[Any]:
        return [row["loss"] for row in self.rows[trial]]

    def notes(self, trial: int) -> list[msg.TrialNoted]:
        return [each for each in self.said if isinstance(each, msg.TrialNoted) and each.trial == trial]

    def saved(self, trial: int, target: Path) -> list[str]:
        """What the file `who` holds in each checkpoint of the trial."""
        uris = [
            each.uri
            for each in self.said
            if isinstance(each, msg.CheckpointCommitted) and each.trial == trial
        ]
        found, run = [], f"{self._place.storage_path}/{self._place.sweep_id}"
        for index, uri in enumerate(uris):
            restore_uri(to_uri(run, uri), target / f"{trial}-{index}")
            found.append((target / f"{trial}-{index}" / "who").read_text())
        return found

    def send(self, message: FromWorker, *, waits: bool = False) -> None:
        self.said.append(message)
        super().send(message, waits=waits)

    def keep_row(self, trial: int, row: dict[str, Any]) -> None:
        self.rows[trial].append(row)

    def keep(self, message: FromWorker) -> None:
        """`send` keeps all messages."""
