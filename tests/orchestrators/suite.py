"""The promises that a night keeps behind every orchestrator, as one suite of scenarios.

An orchestrator takes part through a small adapter (`Orchestrator`): how a night is begun, looked at, killed,
cancelled and asked for again. A test class inherits `OrchestratorContract` and gives the fixture
`orchestrator`. All parts are real: servers, workers, the Ray head and what runs on it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jobs.head import Head
from tests.orchestrators.nights import (
    CUT,
    HERE,
    MOVED,
    NIGHT_S,
    SHORT,
    STOP_S,
    Nights,
    Orchestrator,
)
from tests.proxy import Proxy


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
