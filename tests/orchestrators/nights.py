"""A night on an orchestrator: its spec, the adapter that runs it, and checks from outside of it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import pytest

import raysweep as rs
from raysweep.core import decode
from raysweep.core.vocabulary.events import TrialReturned
from raysweep.runs.across_runs.champions import Line, read_champion
from raysweep.runs.folder import SweepFolder
from raysweep.storage.objects.opening import open_store
from tests.jobs.cluster import Cluster
from tests.jobs.head import Head
from tests.orchestrators.trainables import lines

Step = Literal["sweep", "gate", "train"]
State = Literal["waiting", "running", "success", "failed", "skipped", "cancelled"]
ENDED: Final = ("success", "failed", "skipped", "cancelled")
HERE: Final = "tests.orchestrators.trainables"
NIGHT_S: Final = 240.0
# The time counts from the first controller on: it starts workers first.
SHORT: Final = {"time_budget_s": 20.0, "min_trials": 1}
CUT: Final = {"time_budget_s": 30.0, "min_trials": 1, "grace_s": 1.0}
MOVED: Final = CUT | {"time_budget_s": 600.0}
STOP_S: Final = 30.0
"""Within so long nothing of a stopped sweep may be left on the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """What an orchestrator is asked to run: a sweep and what follows it, on the head, as jobs."""

    sweep: Mapping[str, Any]
    """The sweep's spec, as a document."""
    train: Mapping[str, Any] | None = None
    gate: Mapping[str, Any] | None = None
    accept_partial: bool = True
    retries: int = 2
    """How often the orchestrator may try each step again; 1 s apart."""
    job: Mapping[str, Any] = field(default_factory=dict)
    """How its jobs are submitted: fields of `JobSettings`."""
    approval: Mapping[str, Any] | None = None
    """What the gate's candidate waits for; fields of an `ApprovalSpec`."""
    registry: Mapping[str, Any] | None = None
    """Where the champion is registered."""


class Orchestrator(Protocol):
    """What the scenarios need of an orchestrator. A run is named by whatever its `begin` returns."""

    def begin(self, night: Night) -> str:
        """Start a night, and return at once."""

    def state(self, run: str, step: Step) -> State:
        """How a step is doing; `waiting` too where it waits for its next try."""

    def tries(self, run: str, step: Step) -> int:
        """How often the step was begun."""

    def handed_on(self, run: str) -> Mapping[str, Any]:
        """The small JSON that the sweep step handed on (`brief`)."""

    def message(self, run: str, step: Step) -> str:
        """All that a person is shown of how the step ended: its messages and its log."""

    def shown(self, run: str) -> str:
        """All that was shown, logged or stored by the orchestrator for this run: no secret may be in it."""

    def kill_step(self, run: str) -> None:
        """SIGKILL the process that runs, or waits for, the sweep step, and see that the step is tried again.

        What the orchestrator does not do by itself is done as a person would.
        """

    def kill_submission(self, run: str) -> None:
        """The same, while the step's process submits its job."""

    def move(self, run: str, night: Night) -> str:
        """What a person does so that a night that has ended continues by this one; its name."""

    def restart_servers(self) -> None:
        """End the orchestrator's servers as a deployment does, and start them again."""

    def cancel(self, run: str) -> None:
        """What a person does in the UI so that the night ends now."""

    def again(self, run: str) -> None:
        """What a person does in the UI so that the sweep step of a run that has ended is run again."""

    def reach(self, address: str) -> None:
        """Reach the head at this address from now on: there may be a door in between."""


class Nights:
    """The nights of one scenario, and what is seen of them from outside the orchestrator."""

    def __init__(self, orchestrator: Orchestrator, head: Head, log: Path, storage: Path) -> None:
        self.orchestrator = orchestrator
        self.head = head
        self.cluster = Cluster(head)
        self._log = log
        self._storage = storage
        self._go = log.with_suffix(".go")
        self._begun: dict[str, Night] = {}

    def begin(
        self,
        *,
        train: bool = False,
        gate: Mapping[str, Any] | None = None,
        accept_partial: bool = True,
        pause: float = 0.0,
        train_pause: float = 0.0,
        **fields: Any,
    ) -> str:
        """Begin a night; `fields` are the sweep's."""
        sweep = {
            "name": "night",
            "trainable": f"{HERE}:trial",
            "param_space": {"x": {"uniform": [0, 1]}, "pause": pause, "log": str(self._log)},
            "metric": "loss",
            "mode": "min",
            "search": "random",
            "seed": 7,
            "storage_path": str(self._storage),
        }
        training = {
            "name": "full",
            "trainable": f"{HERE}:train",
            "config": {"train_pause": train_pause},
            "scaling": {"num_workers": 1},
            "storage_path": str(self._storage),
        }
        night = Night(
            sweep=sweep | fields,
            train=training if train else None,
            gate=gate,
            accept_partial=accept_partial,
        )
        run = self.orchestrator.begin(night)
        self._begun[run] = night
        return run

    def begin_waiting(self, *xs: float, **fields: Any) -> str:
        """Begin a night with a trial for each x, in this order; those below 0.3 wait until `move`."""
        space = {"x": {"grid_search": list(xs)}, "below": 0.3, "go": str(self._go), "log": str(self._log)}
        return self.begin(trainable=f"{HERE}:waiting", param_space=space, **fields)

    def move(self, run: str, **fields: Any) -> str:
        """Let a night that has ended continue, with these fields of its sweep; nothing in it waits."""
        self._go.touch()
        night = self._begun[run]
        return self.orchestrator.move(run, replace(night, sweep={**night.sweep, **fields}))

    def champion(self) -> float:
        """The x of the champion."""
        found = read_champion(
            open_store(str(self._storage)), Line(name="night", metric="loss", mode="min")
        ).champion
        assert found is not None
        return float(found.config["x"])

    def ends(self, run: str, step: Step, *expected: State, timeout_s: float = NIGHT_S) -> State:
        """Wait for a step's end, which has to be one of these."""
        deadline = time.monotonic() + timeout_s
        while (state := self.orchestrator.state(run, step)) not in ENDED:
            if step == "train" and self.orchestrator.state(run, "sweep") in ("failed", "cancelled"):
                pytest.fail(f"the sweep failed: {self.orchestrator.message(run, 'sweep')[-4000:]}")
            if time.monotonic() > deadline:
                pytest.fail(f"{step} is {state}: {self.orchestrator.message(run, step)[-4000:]}")
            time.sleep(0.2)
        assert state in expected, self.orchestrator.message(run, step)[-4000:]
        return state

    def until(self, check: Callable[[], Any], timeout_s: float = NIGHT_S) -> None:
        """Wait for it."""
        deadline = time.monotonic() + timeout_s
        while not check():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.1)

    def noted(self, word: str) -> list[str]:
        """What the scenario's trials and trainings noted under this word."""
        return [line[1] for line in lines(self._log) if line[0] == word]

    def started_twice(self) -> list[str]:
        """The trials that were started more than once."""
        return [trial for trial, number in Counter(self.noted("start")).items() if number > 1]

    def is_asked_to_cancel(self) -> bool:
        """Whether a request to cancel the scenario's sweep is stored."""
        return any(folder.read_cancellation() for folder in self._folders())

    @contextmanager
    def hidden_outcome(self, for_s: float) -> Iterator[None]:
        """Take the outcome of the scenario's only sweep away as it is written, and give it back later."""
        [sweep] = self._storage.glob("night-*")
        path, away = sweep / "outcome.json", self._storage / "outcome.json"
        was_hidden = threading.Event()

        def hide() -> None:
            while not path.exists():
                time.sleep(0.005)
            path.rename(away)
            was_hidden.set()
            time.sleep(for_s)
            away.rename(path)

        thread = threading.Thread(target=hide, daemon=True)
        thread.start()
        yield
        assert was_hidden.is_set()
        thread.join()

    @contextmanager
    def driver_stopped(self) -> Iterator[None]:
        """The driver of the only job that runs stands still, from its first moment on."""
        self.until(self.cluster.drivers)
        pids = self.cluster.drivers()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def jobs(self) -> list[str]:
        """The sweeps' jobs that the head knows: of this scenario only."""
        names = {folder.sweep_id for folder in self._folders()}
        infos = self.cluster.ask(lambda client: client.jobs())
        return sorted(info.job_id for info in infos if info.job_id.rpartition(".")[0] in names)

    def folder(self) -> SweepFolder:
        """Where the scenario's only sweep is stored."""
        [folder] = self._folders()
        return folder

    def outcome(self) -> rs.SweepOutcome:
        """How the scenario's only sweep ended."""
        outcome = self.folder().read_outcome()
        assert outcome is not None
        return outcome

    def finished(self) -> set[str]:
        """The trials whose end the journal holds."""
        records = (decode(line) for line in self.folder().journal().contents().records)
        return {str(event.trial) for event in records if isinstance(event, TrialReturned)}

    def _folders(self) -> list[SweepFolder]:
        store = open_store(str(self._storage))
        names = sorted(path.name for path in self._storage.glob("night-*") if path.is_dir())
        return [SweepFolder(store, name) for name in names if not name.startswith("night-gate")]
