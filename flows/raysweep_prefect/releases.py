"""The tasks around a champion: its approval, its registration, its rollback."""

from __future__ import annotations

from functools import partial
from typing import Any

from prefect import task
from prefect.states import Completed

import raysweep as rs
from raysweep.hooks.model_registry import RegistrySpec
from raysweep.specs.pipeline import GateSpec, PipelineSpec
from raysweep_prefect.following import show_report
from raysweep_prefect.parameters import SweepDocument
from raysweep_prefect.signals import tell_rollback, tell_verdict
from raysweep_prefect.steps import run_logger
from raysweep_prefect.tasks import AGAIN, RESUMABLE, run_name


@task(name="approval", task_run_name=partial(run_name, "approval"), **RESUMABLE)
def approval(
    spec: SweepDocument,
    key: str | None,
    outcome: rs.SweepOutcome,
    gate_spec: GateSpec,
    is_judged: bool = False,
) -> Any:
    """Take the decision about a candidate into the outcome; the state is named Approved or Rejected.

    Args:
        spec: The sweep's spec.
        key: Names the night.
        outcome: What the sweep gave, with the verdict of its gate, about which there is a decision.
        gate_spec: What its best had to show.
        is_judged: Whether it is champion only once its model has passed a judgement.

    Raises:
        StorageError: The decision cannot be read.
    """
    from raysweep.pipeline import await_approval, with_gate

    asked, waiting = rs.SweepSpec.from_any(spec), outcome.gate
    assert waiting is not None
    verdict = await_approval(asked, outcome, gate_spec, waiting, on_wait=run_logger().debug)
    decided = with_gate(outcome, verdict)
    show_report(decided)
    tell_verdict(asked, decided, gate_spec, is_judged=is_judged)
    name = "Approved" if verdict.promoted else "Rejected"
    return Completed(name=name, message=verdict.why, data=decided)


@task(name="register", task_run_name=partial(run_name, "register"), **AGAIN)
def register(
    spec: PipelineSpec, key: str | None, outcome: rs.SweepOutcome, trained: rs.TrainOutcome | None
) -> str:
    """Bring the registry to the champion, as `raysweep pipeline` does; a line that says how it stands.

    A registry that does not answer fails nothing: the next night, or `raysweep register`, continues.

    Args:
        spec: The pipeline.
        key: Names the night.
        outcome: What its sweep gave, with the verdict of the gate.
        trained: The training, if there was one.

    Raises: StorageError.
    """
    from raysweep.pipeline.registering import register_night

    text = register_night(spec, outcome, trained)
    run_logger().info("%s", text or "registry: no model of these champions yet")
    return text


@task(name="rollback", task_run_name="rollback {name}", **AGAIN)
def roll_back(
    name: str,
    storage_path: str,
    *,
    to: str | None = None,
    by: str = "",
    why: str = "",
    metric: str | None = None,
    data: str | None = None,
    registry: RegistrySpec | None = None,
) -> dict[str, Any]:
    """As `raysweep rollback`, with its event and the champion's asset.

    Args:
        name: The champion's name.
        storage_path: Where its sweeps are stored.
        to, by, why, metric, data, registry: As in the flow `rollback-champion`.

    Raises:
        SpecError: There is no such champion, or none to go back to.
        StorageError.
    """
    from raysweep.pipeline.rollback import roll_back_champion

    which: dict[str, Any] = {"metric": metric, "data": data, "registry": registry}
    done = roll_back_champion(name, storage_path, to=to, by=by, why=why, **which)
    champion, entry = done.rollback.champion, done.rollback.entry
    shown: dict[str, Any] = {
        "changed": done.rollback.is_new,
        "champion": champion.model_dump(mode="json", exclude={"replaced"}),
        "by": entry.by,
        "at": entry.at,
        "why": entry.why,
        "registry": str(done.synced) if done.synced is not None else "",
    }
    run_logger().info("%s: %s", "rolled back" if done.rollback.is_new else "nothing to do", champion.sweep_id)
    if entry.kind == "rollback":
        # Also where it was made before: the server stores the event once.
        replaced = entry.before.sweep_id if entry.before is not None else ""
        once = f"{storage_path}/{done.line.key}/{entry.number}"
        tell_rollback(done.line, shown, champion=champion.sweep_id, replaced=replaced, once=once)
    return shown
