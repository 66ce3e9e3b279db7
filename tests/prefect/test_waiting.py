"""A flow run that waits for approval, against a server in memory that can be away: no process is needed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from prefect.client.schemas.responses import SetStateStatus
from prefect.exceptions import Abort
from prefect.states import Cancelled, Completed, Running, State

import raysweep as rs
from raysweep.errors import StorageUnavailableError
from raysweep.outcome import Decision
from raysweep.outcome.judgement import Judgement
from raysweep.pipeline import prepare_judge, with_gate
from raysweep.pipeline.approval import champion_line
from raysweep.pipeline.candidate import Candidate
from raysweep.runs.across_runs.approvals import Decided, decide_night
from raysweep.runs.across_runs.champions import read_champion
from raysweep.specs.approval import ApprovalSpec
from raysweep.specs.pipeline import GateSpec
from raysweep.storage.objects.opening import open_store
from raysweep_prefect import approval
from raysweep_prefect.approval import ApprovalForm, WaitEndedError, wait_for_decision, wait_for_release
from tests.unit.pipeline.gates import make_spec, night, swept
from tests.unit.pipeline.judgements import JUDGE, evaluated, promoted, trained

GATE = GateSpec(confirm_top_k=1, min_improvement=0.02)


class Server:
    """One flow run, its state and its inputs. `script` has what happens before each look at it."""

    def __init__(self) -> None:
        self.state: State[Any] = Running()
        self.run_count = 1
        self.seen = SimpleNamespace(id=uuid4(), name="brave-bison", run_count=1)
        self.seen.parent_task_run_id = self.seen.deployment_id = None
        """The flow run as its process has it."""
        self.inputs: dict[str, Any] = {}
        self.forms: list[str] = []
        self.is_away = False
        self.script: list[Any] = []

    @contextmanager
    def client(self) -> Iterator[Any]:
        if self.script:
            self.script.pop(0)()
        if self.is_away:
            raise httpx.ConnectError("refused")
        yield self

    def read_flow_run(self, _: UUID) -> Any:
        return SimpleNamespace(state=self.state, state_name=self.state.name, run_count=self.run_count)

    def filter_flow_run_input(self, _: UUID, *, key_prefix: str, **__: Any) -> list[Any]:
        found = [(key, value) for key, value in self.inputs.items() if key.startswith(key_prefix)]
        return [
            SimpleNamespace(key=key, value=json.dumps(value), created=number)
            for number, (key, value) in enumerate(found)
        ]

    def set_flow_run_state(self, _: UUID, state: State[Any]) -> None:
        assert state.state_details.run_input_keyset is not None
        assert state.state_details.run_input_keyset["schema"] in self.forms, "its form is saved before"
        self.state = state

    def resume_flow_run(self, _: UUID, *, run_input: dict[str, Any]) -> Any:
        """As the form on Prefect's page, and as the flow itself by a decision from elsewhere."""
        assert self.state.is_paused()
        assert self.state.state_details.run_input_keyset is not None
        self.inputs[self.state.state_details.run_input_keyset["response"]] = run_input
        self.state = Running()
        self.run_count += 1  # as a real one does
        return SimpleNamespace(status=SetStateStatus.ACCEPT)

    def retry(self) -> None:
        """Run it again in another process."""
        self.state = Running()
        self.run_count += 1
        self.seen = SimpleNamespace(**vars(self.seen) | {"run_count": self.run_count})

    def answer(self, approved: bool, note: str = "") -> None:
        self.resume_flow_run(uuid4(), run_input={"approved": approved, "by": "ann", "note": note})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    found = Server()

    def save(cls: type[ApprovalForm], keyset: Any, **_: Any) -> None:
        assert "waits for approval" in (cls._description or "")
        found.forms.append(keyset["schema"])

    monkeypatch.setattr(approval, "POLL_S", 0.01)
    monkeypatch.setattr(approval, "_client", found.client)
    monkeypatch.setattr(ApprovalForm, "save", classmethod(save))
    context = SimpleNamespace(get=lambda: SimpleNamespace(flow_run=found.seen))
    monkeypatch.setattr(approval, "FlowRunContext", context)
    return found


def waiting(storage: Path, key: str = "n1", **spec: Any) -> tuple[rs.SweepSpec, rs.SweepOutcome]:
    """A night whose candidate waits."""
    verdict = night(storage, key, 0.5, approval=ApprovalSpec(**{"timeout": 3600.0, **spec}))
    outcome = swept(key, 0.5).model_copy(update={"uri": f"{storage}/{key}"})
    return make_spec(storage), with_gate(outcome, verdict)


def decide(spec: rs.SweepSpec, outcome: rs.SweepOutcome, approved: bool, by: str = "bob") -> Decided | None:
    """As `raysweep approve` does."""
    assert outcome.gate is not None
    asked = Decision(approved=approved, by=by, at=time.time())
    store, line = open_store(spec.storage_path), champion_line(spec, GATE)
    return decide_night(store, line, outcome.sweep_id, outcome.gate.gate_id, asked)


def champion(spec: rs.SweepSpec) -> str:
    found = read_champion(open_store(spec.storage_path), champion_line(spec, GATE)).champion
    return found.sweep_id if found is not None else ""


@pytest.mark.parametrize("approved", [True, False])
def test_the_answer_of_the_form_is_the_decision(approved: bool, server: Server, tmp_path: Path) -> None:
    spec, outcome = waiting(tmp_path)
    server.script = [lambda: None, lambda: server.answer(approved, "so  it is")]
    decision = wait_for_decision(outcome)
    assert (decision.approved, decision.by, decision.note) == (approved, "ann", "so it is")
    assert server.state.is_running()
    assert server.seen.run_count == server.run_count == 2, "hooks find the jobs of this number"
    assert len(server.forms) == 1
    assert champion(spec) == ("n1" if approved else "")


def test_a_decision_on_the_command_line_resumes_the_run(server: Server, tmp_path: Path) -> None:
    spec, outcome = waiting(tmp_path)
    server.script = [lambda: None, lambda: decide(spec, outcome, True)]
    assert wait_for_decision(outcome).by == "bob"
    assert server.state.is_running()
    assert server.seen.run_count == server.run_count == 2
    assert [each["by"] for each in server.inputs.values()] == ["bob"], "the form shows who decided"


def test_silence_resumes_the_run(server: Server, tmp_path: Path) -> None:
    _spec, outcome = waiting(tmp_path, timeout=0.3, on_silence="promote")
    decision = wait_for_decision(outcome)
    assert (decision.by, decision.approved, server.state.is_running()) == ("silence", True, True)


def test_of_two_answers_the_first_in_the_champions_file_counts(server: Server, tmp_path: Path) -> None:
    spec, outcome = waiting(tmp_path)

    def both() -> None:
        server.answer(True)
        decide(spec, outcome, False)

    server.script = [lambda: None, both]
    assert str(wait_for_decision(outcome)).startswith("rejected by bob")
    assert champion(spec) == ""


def test_a_server_that_is_away_delays_the_form_and_loses_nothing(server: Server, tmp_path: Path) -> None:
    spec, outcome = waiting(tmp_path)

    def set_away(is_away: bool) -> Any:
        return lambda: setattr(server, "is_away", is_away)

    server.script = [set_away(True), lambda: None, set_away(False), lambda: server.answer(True)]
    assert wait_for_decision(outcome).by == "ann"
    # Decided while it is away, the run continues once the server knows that it runs again.
    spec, outcome = waiting(tmp_path / "again")
    down = [set_away(True), lambda: decide(spec, outcome, False), lambda: None, set_away(False)]
    server.script = [lambda: None, *down]
    assert wait_for_decision(outcome).by == "bob"
    assert server.state.is_running()


def test_a_retry_opens_a_form_of_its_own(server: Server, tmp_path: Path) -> None:
    """The process died while the run was paused: a form with the key of the first could not be saved."""
    _spec, outcome = waiting(tmp_path)

    def dies() -> None:
        raise KeyboardInterrupt

    server.script = [lambda: None, dies]
    with pytest.raises(KeyboardInterrupt):
        wait_for_decision(outcome)
    server.retry()
    server.script = [lambda: None, lambda: server.answer(True)]
    assert wait_for_decision(outcome).approved
    assert len(set(server.forms)) == 2


def test_an_answer_that_was_not_read_counts_in_the_retry(server: Server, tmp_path: Path) -> None:
    _spec, outcome = waiting(tmp_path)

    def answered_and_dies() -> None:
        server.answer(False, "too slow")
        raise KeyboardInterrupt

    server.script = [lambda: None, answered_and_dies]
    with pytest.raises(KeyboardInterrupt):
        wait_for_decision(outcome)
    server.retry()
    assert wait_for_decision(outcome).note == "too slow"
    assert len(server.forms) == 1, "it is not asked again"


@pytest.mark.parametrize("state", [Cancelled(), Completed()], ids=["cancelled", "completed"])
@pytest.mark.parametrize(
    ("parent", "deployment", "error"),
    [(None, None, Abort), (uuid4(), None, WaitEndedError), (uuid4(), uuid4(), Abort)],
    ids=["run", "subflow", "run_deployment"],
)
def test_a_person_who_ends_the_run_decides_nothing(
    parent: UUID | None,
    deployment: UUID | None,
    error: type[BaseException],
    state: State[Any],
    server: Server,
    tmp_path: Path,
) -> None:
    """Prefect leaves the state of a run alone that aborts; a subflow must not abort its parent."""
    server.seen.parent_task_run_id, server.seen.deployment_id = parent, deployment
    spec, outcome = waiting(tmp_path)
    server.script = [lambda: None, lambda: setattr(server, "state", state)]
    with pytest.raises(error, match="while it waited for approval"):
        wait_for_decision(outcome)
    assert champion(spec) == ""
    assert decide(spec, outcome, True) is not None


def test_an_attempt_that_is_over_leaves_the_form_to_the_next(server: Server, tmp_path: Path) -> None:
    _spec, outcome = waiting(tmp_path)
    server.script = [lambda: None, lambda: setattr(server, "run_count", 2)]
    with pytest.raises(Abort, match="another attempt"):
        wait_for_decision(outcome)


def test_a_storage_that_is_away_is_asked_again(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _spec, outcome = waiting(tmp_path)
    real, calls = Candidate.decide, []

    def decide_at_times(*given: Any) -> Any:
        calls.append(given)
        if len(calls) in (1, 3):
            raise StorageUnavailableError("s3://bucket", "does not answer")
        return real(*given)

    monkeypatch.setattr(Candidate, "decide", decide_at_times)
    server.script = [lambda: None, lambda: server.answer(True)]
    assert wait_for_decision(outcome).by == "ann"


def judged(storage: Path, approval: ApprovalSpec | None) -> tuple[rs.SweepOutcome, Judgement]:
    """A night whose model has passed its judgement."""
    run = prepare_judge(JUDGE, promoted(storage, "n1", approval=approval), trained(storage, "n1"))
    judgement = run.settle(evaluated(run))
    return with_gate(run.outcome, night(storage, "n1", 0.5, is_judged=True)), judgement


@pytest.mark.parametrize("approved", [True, False])
def test_a_model_that_passed_waits_for_its_own_answer(approved: bool, server: Server, tmp_path: Path) -> None:
    outcome, judgement = judged(tmp_path, ApprovalSpec(after="judge", timeout=3600.0))
    assert champion(make_spec(tmp_path)) == ""
    server.inputs["paused-approval-0123456789ab-0-response"] = {"approved": True, "by": "eve", "note": ""}
    server.script = [lambda: None, lambda: server.answer(approved, "looks fine")]
    decision = wait_for_release(outcome, judgement)
    assert decision is not None
    assert (decision.approved, decision.by, decision.note) == (approved, "ann", "looks fine")
    assert server.state.is_running()
    assert champion(make_spec(tmp_path)) == ("n1" if approved else "")
    again = wait_for_release(outcome, judgement)
    assert again == decision
    assert len(server.forms) == 1


def test_a_model_without_an_approval_does_not_wait(server: Server, tmp_path: Path) -> None:
    outcome, judgement = judged(tmp_path, None)
    assert wait_for_release(outcome, judgement) is None
    assert server.forms == []
    assert champion(make_spec(tmp_path)) == "n1"
