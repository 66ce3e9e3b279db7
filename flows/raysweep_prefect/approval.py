"""Approval in a flow: the run is paused with a form, and continues by the decision, wherever that is made.

The flow run waits in its process, without Ray. The decision is in the champion's file (`raysweep.pipeline`):
the form is one way to it, `raysweep approve` another, and silence a third. Whichever comes first counts.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from prefect.flow_runs import pause_flow_run, resume_flow_run
from prefect.input import RunInput
from prefect.runtime import flow_run
from pydantic import Field

import raysweep as rs
from raysweep.outcome import Decision, GateOutcome
from raysweep.pages.evidence import evidence_page
from raysweep.pipeline import await_approval
from raysweep.pipeline.approval import champion_line, how_to_decide
from raysweep.runs.across_runs.approvals import decide_night
from raysweep.runs.across_runs.evidence import read_chain
from raysweep.specs.pipeline import GateSpec
from raysweep.storage.objects.opening import open_store
from raysweep_prefect.steps import run_logger

POLL_S = 5
_LONGER_S = 86_400
"""How much longer the pause lasts than the time for a decision: silence ends it, and not Prefect."""


class ApprovalForm(RunInput):
    """The decision about a candidate that passed its gate."""

    approved: bool = Field(description="Whether it becomes champion, and is trained.")
    by: str = Field(default="", description="Who decides; default: the flow run.")
    note: str = Field(default="", description="The reason, stored in the evidence.")


def approved_gate(spec: rs.SweepSpec, outcome: rs.SweepOutcome, gate: GateSpec) -> GateOutcome:
    """The gate's verdict with the decision in it; the flow run is paused until there is one.

    Args:
        spec: The sweep's spec.
        outcome: What it gave, with the verdict of its gate.
        gate: What its best had to show.

    Raises: StorageError: The decision cannot be read or written.
    """
    verdict = outcome.gate
    assert verdict is not None
    storage = outcome.uri.rpartition("/")[0]
    store, line = open_store(storage), champion_line(spec, gate)
    told = decide_night(store, line, outcome.sweep_id, verdict.gate_id)
    if told is None and verdict.approval is not None:
        run_logger().info("%s", how_to_decide(verdict, outcome, store.url))
        chain = read_chain(store, line)
        form = ApprovalForm.with_initial_data(description=evidence_page(line, chain, chain.entries[-1:]))
        left_s = max(1, round(verdict.approval.until - time.time()))
        with _ended_elsewhere(spec, outcome, gate, verdict):
            answer = pause_flow_run(wait_for_input=form, timeout=left_s + _LONGER_S, poll_interval=POLL_S)
        asked = Decision(
            approved=answer.approved,
            by=answer.by or f"flow run {flow_run.name}",
            at=time.time(),
            note=" ".join(answer.note.split()),
        )
        told = decide_night(store, line, outcome.sweep_id, verdict.gate_id, asked)
    assert told is not None
    run_logger().info("approval: %s", told.decision)
    return await_approval(spec, outcome, gate, verdict, on_wait=run_logger().debug)


@contextmanager
def _ended_elsewhere(
    spec: rs.SweepSpec, outcome: rs.SweepOutcome, gate: GateSpec, verdict: GateOutcome
) -> Iterator[None]:
    """Resume the flow run once there is a decision that was not made in its form."""
    run_id, has_ended = flow_run.id, threading.Event()
    store, line = open_store(outcome.uri.rpartition("/")[0]), champion_line(spec, gate)

    def watch() -> None:
        while not has_ended.wait(POLL_S):
            with suppress(rs.RaysweepError):
                told = decide_night(store, line, outcome.sweep_id, verdict.gate_id)
                if told is None:
                    continue
                decision = told.decision
                given = {"approved": decision.approved, "by": decision.by, "note": decision.note}
                with suppress(Exception):  # not paused yet, or resumed at this moment: asked again
                    resume_flow_run(run_id, run_input=given)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(watch,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()
