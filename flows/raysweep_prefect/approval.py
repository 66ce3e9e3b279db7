"""Approval in a flow: the run is paused with a form, and continues by the decision, wherever that is made.

The flow run waits in its process, without Ray. The decision is in the champion's file (`raysweep.pipeline`):
the form is one way to it, `raysweep approve` another, and silence a third. Whichever comes first counts.

`prefect.pause_flow_run` is not used: it fails where the server is away, and a retry of a run that crashed
while it was paused cannot save its form again. Here each form has a key of its own, the answer to any of them
counts, and a server that does not answer is asked again.
"""

from __future__ import annotations

import time
from typing import Any, Final
from uuid import uuid4

import orjson
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import FlowRun, FlowRunInput, State, StateType
from prefect.client.schemas.responses import SetStateStatus
from prefect.context import FlowRunContext
from prefect.exceptions import Abort
from prefect.input import RunInput
from prefect.input.run_input import keyset_from_paused_state
from prefect.states import Paused
from pydantic import Field

import raysweep as rs
from raysweep.errors import StorageUnavailableError
from raysweep.outcome import Decision
from raysweep.outcome.judgement import Judgement
from raysweep.pipeline.approval import approve_command
from raysweep.pipeline.candidate import find_candidate
from raysweep_prefect.identity import has_own_process
from raysweep_prefect.signals import named_night
from raysweep_prefect.steps import Logger, run_logger

POLL_S: Final = 5.0
TIMEOUT_S: Final = 20.0
_LONGER_S: Final = 86_400
"""The time that the pause lasts beyond that for a decision: silence ends it, and not Prefect."""
_RESPONSE: Final = "-response"
_ENDED: Final = frozenset({StateType.CANCELLING, StateType.CANCELLED, StateType.FAILED, StateType.COMPLETED})


class ApprovalForm(RunInput):
    """The decision about a config that passed its gate, or a model that passed its judgement."""

    approved: bool = Field(description="True: it becomes champion, and is trained or released.")
    by: str = Field(default="", description="The person that decides; default: the flow run.")
    note: str = Field(default="", description="The reason, stored in the evidence.")


class WaitEndedError(RuntimeError):
    """A person ended the subflow while it waited for approval; its parent continues."""


class WaitAbortedError(Abort):
    """A person ended the flow run while it waited, or another attempt waits: its state stays as it is."""


def wait_for_decision(outcome: rs.SweepOutcome) -> Decision:
    """The decision about a candidate that waits; until there is one the flow run is paused.

    Args:
        outcome: What the sweep gave, with the verdict of its gate.

    Raises:
        WaitAbortedError, WaitEndedError: A person ended the flow run. The candidate waits still.
        StorageError: The decision cannot be read or written.
    """
    verdict = outcome.gate
    assert verdict is not None
    decision = _wait(outcome, verdict.gate_id, verdict.why, is_judged=False)
    assert decision is not None, "a candidate that waits needs approval"
    return decision


def wait_for_release(outcome: rs.SweepOutcome, judgement: Judgement) -> Decision | None:
    """The decision about a model that passed its judgement, as `wait_for_decision`; None: it needs none.

    Args:
        outcome: What the sweep gave, with the verdict of its gate.
        judgement: That of the model.

    Raises: As `wait_for_decision`.
    """
    if not judgement.is_passed:
        return None
    return _wait(outcome, judgement.judge_id, judgement.why, is_judged=True)


def _wait(outcome: rs.SweepOutcome, form: str, why: str, *, is_judged: bool) -> Decision | None:
    logger = run_logger()
    paused: _PausedRun | None = None
    answer: Decision | None = None
    while True:
        try:
            candidate = find_candidate(named_night(outcome), is_judged=is_judged)
            if candidate is None:
                return None
            decision = candidate.decide(answer)
            if decision is not None:
                break
            if paused is None:
                told = approve_command(candidate.night, candidate.store.url)
                logger.info("%s; %s: %s (or --reject)", why, candidate.approval, told)
                paused = _PausedRun(form, candidate.page, until=candidate.approval.until, logger=logger)
        except StorageUnavailableError as error:
            logger.warning("approval: %s; asking again", error)
            time.sleep(POLL_S)
            continue
        answer = paused.ask()
        if answer is None:
            time.sleep(POLL_S)
    if paused is not None:
        paused.end(decision)
    logger.info("approval: %s", decision)
    return decision


class _PausedRun:
    """The flow run while it waits, as the server knows it, and its form.

    Args:
        form: Names the forms of this decision.
        page: The text of the form, in Markdown.
        until: When silence decides, in UTC seconds.
        logger: The flow run's.
    """

    def __init__(self, form: str, page: str, *, until: float, logger: Logger) -> None:
        context = FlowRunContext.get()
        if context is None or context.flow_run is None:
            raise RuntimeError("an approval is waited for in a flow")
        self._run = context.flow_run
        self._attempt = context.flow_run.run_count
        self._keys: set[str] = set()
        """Of the forms of this attempt."""
        self._prefix = f"approval-{form}-"
        self._page = page
        self._until = until
        self._logger = logger
        self._is_quiet = False

    def ask(self) -> Decision | None:
        """Pause the flow run, unless it is paused; the first answer that a form of this decision got.

        Raises: WaitAbortedError, WaitEndedError.
        """
        try:
            with _client() as client:
                # In this order: an answer and the state after it are written together.
                now, answers = self._look(client)
                if answers:
                    return self._read(min(answers, key=_created))
                if now.state is not None and now.state.is_running():
                    self._pause(client)
            self._is_quiet = False
        except WaitEndedError:
            raise
        except Exception as error:  # noqa: BLE001  the server is away; the decision may come another way
            self._warn(error)
        return None

    def end(self, decision: Decision) -> None:
        """Let the flow run be running again, by the decision; waits for a server that is away.

        Raises: WaitAbortedError, WaitEndedError.
        """
        given = {"approved": decision.approved, "by": decision.by, "note": decision.note}
        while True:
            try:
                with _client() as client:
                    state = self._look(client)[0].state
                    if state is None or not state.is_paused():
                        return
                    told = client.resume_flow_run(self._run.id, run_input=given)
                    if told.status == SetStateStatus.ACCEPT:
                        continue
                    self._logger.warning("the flow run is not resumed: %s", told.details)
            except WaitEndedError:
                raise
            except Exception as error:  # noqa: BLE001  the server is away: the next task needs it as well
                self._warn(error)
            time.sleep(POLL_S)

    def _look(self, client: SyncPrefectClient) -> tuple[FlowRun, list[FlowRunInput]]:
        """The flow run, and the answers that forms of this decision have got.

        Raises: WaitAbortedError, WaitEndedError.
        """
        now = client.read_flow_run(self._run.id)
        prefix = f"paused-{self._prefix}"
        found = client.filter_flow_run_input(self._run.id, key_prefix=prefix, limit=200, exclude_keys=set())
        answers = [each for each in found if each.key.endswith(_RESPONSE)]
        # The server counts a run that is resumed as run again: once for each form that was answered.
        ours = sum(each.key.removeprefix("paused-").removesuffix(_RESPONSE) in self._keys for each in answers)
        if not 0 <= now.run_count - self._attempt <= ours:
            raise self._over("another attempt of the flow run waits for the approval now")
        if now.state is not None and now.state.type in _ENDED:
            raise self._over(f"the flow run was set to {now.state_name} while it waited for approval")
        # What the tasks after this note at the flow run has the number that the hooks look for.
        self._run.run_count = now.run_count
        return now, answers

    def _over(self, why: str) -> WaitAbortedError | WaitEndedError:
        self._logger.warning("%s", why)
        return WaitAbortedError(why) if has_own_process(self._run) else WaitEndedError(why)

    def _read(self, answer: FlowRunInput) -> Decision:
        form = ApprovalForm.model_validate(orjson.loads(answer.value))
        by = form.by or f"flow run {self._run.name}"
        return Decision(approved=form.approved, by=by, at=time.time(), note=" ".join(form.note.split()))

    def _pause(self, client: SyncPrefectClient) -> None:
        left_s = max(1, round(self._until - time.time())) + _LONGER_S
        key = f"{self._prefix}{uuid4().hex[:8]}"
        state: State[None] = Paused(timeout_seconds=left_s, reschedule=False, pause_key=key)
        keyset = keyset_from_paused_state(state)
        state.state_details.run_input_keyset = keyset  # type: ignore[assignment]
        form = ApprovalForm.with_initial_data(description=self._page)
        # Before the pause: a run that is paused without its form cannot be resumed.
        form.save(keyset, flow_run_id=self._run.id, _sync=True)  # type: ignore[call-arg]
        self._keys.add(key)
        client.set_flow_run_state(self._run.id, state)

    def _warn(self, error: Exception) -> None:
        if not self._is_quiet:
            self._is_quiet = True
            self._logger.warning("the form of the approval is not shown for now: %s", error)


def _client() -> SyncPrefectClient:
    # With settings of its own it is another client than the flow run's.
    return get_client(httpx_settings={"timeout": TIMEOUT_S}, sync_client=True)


def _created(given: FlowRunInput) -> Any:
    return given.created
