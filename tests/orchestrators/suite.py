"""The promises that a night keeps behind every orchestrator, as one suite of scenarios.

An orchestrator takes part through a small adapter (`Orchestrator`): how a night is begun, looked at, killed,
cancelled and asked for again. A test class inherits `OrchestratorContract` and gives the fixture
`orchestrator`. All parts are real: servers, workers, the Ray head and what runs on it.
"""

from __future__ import annotations

import json
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
from raysweep.runs.champions import Line, read_champion
from raysweep.runs.folder import SweepFolder
from raysweep.storage.opening import open_store
from tests.jobs.cluster import Cluster
from tests.jobs.head import Head
from tests.orchestrators.trainables import lines
from tests.proxy import Proxy

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
        """What a person does so that a night that has ended goes on by this one; its name."""

    def restart_servers(self) -> None:
        """End the orchestrator's servers as a deployment does, and start them again."""

    def cancel(self, run: str) -> None:
        """What a person does in the UI so that the night ends now."""

    def again(self, run: str) -> None:
        """What a person does in the UI so that the sweep step of a run that has ended is run again."""

    def reach(self, address: str) -> None:
        """Reach the head at this address from now on: there may be a door in between."""


class OrchestratorContract:
    """Inherit it, and give the fixtures `orchestrator`, `head` (a `Head`) and `log` (an empty file).

    A minute each, on two cores: `make test-servers` runs a sample, each behind one orchestrator at least, and
    `make test-all` the slow ones too.
    """

    @pytest.fixture
    def nights(self, orchestrator: Orchestrator, head: Head, log: Path, tmp_path: Path) -> Nights:
        return Nights(orchestrator, head, log, tmp_path / "sweeps")

    @pytest.fixture
    def door(self, orchestrator: Orchestrator, head: Head) -> Iterator[Proxy]:
        """Between the orchestrator and the head; what is seen from outside goes around it."""
        door = Proxy(("127.0.0.1", head.dashboard_port))
        orchestrator.reach(f"http://127.0.0.1:{door.port}")
        yield door
        orchestrator.reach(head.address)
        door.close()

    def test_the_best_config_is_trained(self, nights: Nights) -> None:
        run = nights.begin(num_samples=4, train=True)
        nights.ends(run, "train", "success")
        handed_on = nights.orchestrator.handed_on(run)
        assert len(json.dumps(handed_on)) < 16_384
        assert handed_on["status"] == "completed"
        outcome = nights.outcome()
        assert outcome.best is not None
        assert handed_on["best"]["config"]["x"] == outcome.best.config["x"]
        assert nights.noted("trained") == [str(outcome.best.config["x"])]
        assert nights.jobs() == [f"{outcome.sweep_id}.1"]
        assert nights.orchestrator.tries(run, "sweep") == 1
        assert nights.head.token not in nights.orchestrator.shown(run)

    @pytest.mark.slow
    def test_a_sweep_cut_short_hands_on_the_best_so_far(self, nights: Nights) -> None:
        run = nights.begin(num_samples=500, pause=0.5, stop=SHORT, train=True)
        nights.ends(run, "train", "success")
        assert nights.orchestrator.handed_on(run)["status"] == "budget"
        assert nights.noted("trained")
        assert nights.orchestrator.tries(run, "sweep") == 1

    @pytest.mark.slow
    def test_a_sweep_cut_short_fails_where_the_best_so_far_is_not_taken(self, nights: Nights) -> None:
        run = nights.begin(num_samples=500, pause=0.5, stop=SHORT, train=True, accept_partial=False)
        nights.ends(run, "sweep", "failed")
        assert nights.orchestrator.tries(run, "sweep") == 1
        assert "budget" in nights.orchestrator.message(run, "sweep")
        assert not nights.noted("train")

    def test_a_bad_spec_fails_once_and_names_the_field(self, nights: Nights) -> None:
        run = nights.begin(num_samples=4, mode="smallest")
        nights.ends(run, "sweep", "failed")
        assert nights.orchestrator.tries(run, "sweep") <= 1
        assert "mode" in nights.orchestrator.message(run, "sweep")
        assert not nights.jobs()

    @pytest.mark.slow
    def test_a_trainable_that_cannot_be_imported_fails_once(self, nights: Nights) -> None:
        run = nights.begin(num_samples=4, trainable="tests.orchestrators.trainables:tryal")
        nights.ends(run, "sweep", "failed")
        assert nights.orchestrator.tries(run, "sweep") == 1
        assert "tryal" in nights.orchestrator.message(run, "sweep")
        assert len(nights.jobs()) <= 1

    def test_a_mistake_in_user_code_fails_once_with_its_traceback(self, nights: Nights) -> None:
        run = nights.begin(num_samples=30, trainable=f"{HERE}:raising")
        nights.ends(run, "sweep", "failed")
        assert nights.orchestrator.tries(run, "sweep") == 1
        message = nights.orchestrator.message(run, "sweep")
        assert "the features are missing" in message
        assert len(nights.jobs()) == 1

    @pytest.mark.slow
    def test_a_lost_head_is_a_retry_that_resumes(self, nights: Nights) -> None:
        run = nights.begin(num_samples=8, pause=1.0, train=True)
        nights.until(lambda: len(nights.noted("end")) >= 3)
        nights.head.kill()
        finished = nights.finished()
        assert finished
        nights.head.start()
        nights.ends(run, "train", "success", timeout_s=240)
        outcome = nights.outcome()
        assert outcome.counts == {"completed": 8}
        assert not set(nights.started_twice()) & finished
        assert nights.orchestrator.tries(run, "sweep") >= 1
        assert nights.jobs() == [f"{outcome.sweep_id}.2"]

    @pytest.mark.slow
    def test_a_job_that_a_person_stopped_in_ray_is_not_submitted_again(self, nights: Nights) -> None:
        run = nights.begin(num_samples=500, pause=0.5, train=True)
        nights.until(lambda: nights.noted("start"))
        [job] = nights.jobs()
        nights.cluster.ask(lambda client: client.stop(job))
        state = nights.ends(run, "sweep", "failed", "cancelled")
        assert state in ("failed", "cancelled")
        assert nights.orchestrator.tries(run, "sweep") == 1
        assert nights.jobs() == [job]
        assert nights.outcome().status == "cancelled"
        assert not nights.noted("train")

    def test_a_night_cancelled_by_a_person_ends_its_sweep(self, nights: Nights) -> None:
        run = nights.begin(num_samples=500, pause=0.5, train=True)
        nights.until(lambda: len(nights.noted("end")) >= 1)
        # No sooner than the orchestrator has seen that the step waits.
        nights.until(lambda: nights.orchestrator.state(run, "sweep") == "running")
        nights.orchestrator.cancel(run)
        nights.cluster.wait_until_clean(STOP_S)
        nights.until(lambda: nights.folder().read_outcome() is not None, 10)
        assert nights.outcome().status == "cancelled"
        nights.ends(run, "sweep", "failed", "cancelled")
        assert len(nights.jobs()) == 1
        assert not nights.noted("train")

    @pytest.mark.slow
    def test_a_night_cancelled_while_its_cluster_is_out_of_reach_ends_its_sweep(
        self, nights: Nights, door: Proxy
    ) -> None:
        run = nights.begin(num_samples=500, pause=0.5, train=True)
        nights.until(lambda: len(nights.noted("end")) >= 1)
        nights.until(lambda: nights.orchestrator.state(run, "sweep") == "running")
        door.stall()
        nights.orchestrator.cancel(run)
        nights.cluster.wait_until_clean(STOP_S)
        assert nights.outcome().status == "cancelled"
        door.restore()
        nights.ends(run, "sweep", "failed", "cancelled")
        assert len(nights.jobs()) == 1
        assert not nights.noted("train")

    @pytest.mark.slow
    def test_a_night_cancelled_in_its_submission_leaves_nothing_behind(
        self, nights: Nights, door: Proxy
    ) -> None:
        door.stall_at = b"POST /api/jobs/ "
        run = nights.begin(num_samples=500, pause=0.5)
        nights.until(lambda: door.is_stalled)
        nights.orchestrator.cancel(run)
        nights.until(nights.is_asked_to_cancel, STOP_S)
        # Only now does the cluster hear of the job.
        door.release()
        nights.ends(run, "sweep", "failed", "cancelled")
        time.sleep(2)
        nights.cluster.wait_until_clean(STOP_S)
        assert len(nights.jobs()) <= 1
        assert len(nights.noted("end")) <= 2

    @pytest.mark.slow
    def test_what_is_asked_for_again_is_not_lost_to_a_cluster_that_is_away(
        self, nights: Nights, door: Proxy
    ) -> None:
        run = nights.begin(num_samples=40, pause=1.0)
        nights.until(lambda: len(nights.noted("end")) >= 2)
        nights.until(lambda: nights.orchestrator.state(run, "sweep") == "running")
        nights.orchestrator.cancel(run)
        nights.ends(run, "sweep", "failed", "cancelled")
        nights.until(lambda: nights.folder().read_outcome() is not None, STOP_S)
        assert nights.outcome().status == "cancelled"
        done = nights.finished()
        door.cut()
        tries = nights.orchestrator.tries(run, "sweep")
        nights.orchestrator.again(run)
        # The first of the new tries has failed: the retry knows what it was for.
        nights.until(lambda: nights.orchestrator.tries(run, "sweep") >= tries + 2)
        door.restore()
        nights.ends(run, "sweep", "success")
        assert nights.outcome().counts == {"completed": 40}
        assert not set(nights.started_twice()) & done
        assert len(nights.jobs()) == 2

    @pytest.mark.slow
    def test_an_outcome_that_is_seen_late_is_waited_for(self, nights: Nights) -> None:
        run = nights.begin(num_samples=3)
        nights.until(lambda: nights.noted("end"))
        with nights.hidden_outcome(10.0):
            nights.ends(run, "sweep", "success")
        assert nights.orchestrator.tries(run, "sweep") == 1
        assert len(nights.jobs()) == 1

    @pytest.mark.slow
    def test_what_goes_on_and_finds_better_is_gated_anew(self, nights: Nights) -> None:
        gate = {"confirm_top_k": 1, "seeds": 1, "test": "mean"}
        nights.ends(nights.begin_waiting(0.5, gate=gate, train=True), "train", "success")
        assert nights.champion() == 0.5
        run = nights.begin_waiting(0.9, 0.1, stop=CUT, gate=gate, train=True)
        nights.ends(run, "train", "skipped")
        assert (nights.champion(), nights.noted("trained")) == (0.5, ["0.5"])
        run = nights.move(run, stop=MOVED)
        nights.ends(run, "train", "success")
        assert (nights.champion(), nights.noted("trained")) == (0.1, ["0.5", "0.1"])

    @pytest.mark.slow
    def test_killed_between_its_submission_and_the_answer_it_ends_on_the_newer_outcome(
        self, nights: Nights, door: Proxy
    ) -> None:
        """The old outcome is put aside only after the answer: job 2 runs, and the old one is still there."""
        run = nights.begin_waiting(0.9, 0.1, stop=CUT)
        nights.ends(run, "sweep", "success")
        assert nights.outcome().status == "budget"
        sweep_id = nights.folder().sweep_id
        door.stall_at = f'"job_id": "{sweep_id}.2"'.encode()
        run = nights.move(run, stop=MOVED)
        nights.until(lambda: door.is_stalled)
        with nights.driver_stopped():
            # Its controller would put it aside as well.
            nights.orchestrator.kill_submission(run)
            door.stall_at = b""
            door.restore()
            nights.until(lambda: nights.folder().read_outcome() is None)
        nights.ends(run, "sweep", "success")
        assert nights.outcome().status == "completed"
        # An event of Prefect's comes a little later than the state; the one before is of the same sweep.
        nights.until(lambda: nights.orchestrator.handed_on(run)["best"]["config"]["x"] == 0.1, STOP_S)
        assert nights.jobs() == [f"{sweep_id}.1", f"{sweep_id}.2"]

    @pytest.mark.slow
    def test_a_night_cancelled_in_its_training_ends_the_training(self, nights: Nights) -> None:
        run = nights.begin(num_samples=2, train=True, train_pause=600.0)
        nights.until(lambda: nights.noted("train"))
        nights.until(lambda: nights.orchestrator.state(run, "train") == "running")
        nights.orchestrator.cancel(run)
        nights.cluster.wait_until_clean(STOP_S)
        nights.ends(run, "train", "failed", "cancelled")
        assert not nights.noted("trained")

    def test_a_killed_step_costs_the_sweep_nothing(self, nights: Nights) -> None:
        run = nights.begin(num_samples=24, pause=1.0, train=True)
        nights.until(lambda: len(nights.noted("end")) >= 2)
        nights.orchestrator.kill_step(run)
        nights.ends(run, "train", "success", timeout_s=240)
        assert nights.outcome().counts == {"completed": 24}
        assert not nights.started_twice()
        assert len(nights.jobs()) == 1

    @pytest.mark.slow
    def test_restarted_servers_cost_the_sweep_nothing(self, nights: Nights) -> None:
        run = nights.begin(num_samples=24, pause=1.0, train=True)
        nights.until(lambda: len(nights.noted("end")) >= 2)
        nights.orchestrator.restart_servers()
        nights.ends(run, "train", "success", timeout_s=240)
        assert nights.outcome().counts == {"completed": 24}
        assert not nights.started_twice()
        assert len(nights.jobs()) == 1

    @pytest.mark.slow
    def test_a_sweep_that_has_ended_is_not_run_again(self, nights: Nights) -> None:
        run = nights.begin(num_samples=3)
        nights.ends(run, "sweep", "success")
        first = nights.outcome()
        nights.orchestrator.again(run)
        nights.until(lambda: nights.orchestrator.tries(run, "sweep") >= 2, NIGHT_S)
        nights.ends(run, "sweep", "success")
        assert nights.outcome() == first
        assert len(nights.jobs()) == 1
        assert not nights.started_twice()

    @pytest.mark.slow
    def test_a_best_that_the_gate_does_not_promote_is_not_trained(self, nights: Nights) -> None:
        gate = {"confirm_top_k": 1, "seeds": 1, "test": "mean", "min_improvement": 5.0}
        first = nights.begin(num_samples=2, train=True, gate=gate)
        nights.ends(first, "train", "success")
        trained = nights.noted("trained")
        second = nights.begin(num_samples=2, train=True, gate=gate)
        nights.ends(second, "train", "skipped")
        assert nights.noted("trained") == trained


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
        """Let a night that has ended go on, with these fields of its sweep; nothing in it waits any more."""
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
