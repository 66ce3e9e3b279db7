"""The signals that other flows can react to: events of sweeps, trainings and champions, and assets.

An event of an end or a decision has an id that follows from what it tells, and the server stores an id once:
a retry or another flow run that finds the same outcome sends nothing new.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final
from uuid import NAMESPACE_URL, UUID, uuid5

from prefect.events import emit_event

import raysweep as rs
from raysweep.runs.across_runs.champions import Line
from raysweep.specs.identity import slug
from raysweep.specs.pipeline import GateSpec
from raysweep.step import brief

LOG: Final = logging.getLogger("prefect.raysweep")
_ASSETS: Final = {"sweep": "best-config", "train": "model", "champion": "champion"}


def emit(
    kind: str,
    run_id: str,
    what: str,
    payload: Mapping[str, Any],
    *,
    name: str,
    related: Mapping[str, str] | None = None,
    once: str = "",
) -> None:
    """Emit `raysweep.<kind>.<what>` about the resource `raysweep.<kind>.<run_id>`.

    Args:
        kind: `sweep`, `train` or `champion`.
        run_id: The id of the sweep or the training run; of a champion its name's slug.
        what: `started`, `new_best`, `completed`, `failed`, `cancelled`; of a champion as in `tell_verdict`.
        payload: Plain JSON data; at an end the outcome's brief.
        name: The name of the sweep, training or champion, as its spec says.
        related: The ids of other resources by their roles, such as `sweep`; empty ones are left out.
        once: What makes this event one of a kind; empty: each call is an event of its own.
    """
    resource = {
        "prefect.resource.id": f"raysweep.{kind}.{run_id}",
        "prefect.resource.name": name,
        "raysweep.name": name,
    }
    more: dict[str, Any] = {}
    roles = [
        {"prefect.resource.id": each, "prefect.resource.role": role}
        for role, each in (related or {}).items()
        if each
    ]
    if roles:
        more["related"] = roles
    if once:
        more["id"] = event_id(f"raysweep.{kind}.{what}", once)
    try:
        emit_event(event=f"raysweep.{kind}.{what}", resource=resource, payload=dict(payload), **more)
    except Exception:  # a sweep does not fail for want of an event
        LOG.warning("the event raysweep.%s.%s of %s was not sent", kind, what, run_id, exc_info=True)


def event_id(event: str, once: str) -> UUID:
    """The id of an event: the same for the same thing, whichever flow run tells of it."""
    return uuid5(NAMESPACE_URL, f"{event}/{once}")


def resource_of(kind: str, run_id: str) -> str:
    """The id of a resource; empty where it has no id."""
    return f"raysweep.{kind}.{run_id}" if run_id else ""


def tell_verdict(
    spec: rs.SweepSpec, outcome: rs.SweepOutcome, gate: GateSpec, *, is_judged: bool = False
) -> None:
    """Tell of a gate's verdict, and of the decision where it needs approval; a new champion is an asset.

    `raysweep.champion.proposed`: it passed, and waits for approval or for the judgement of its model;
    `approved`; `promoted`: it is champion; `rejected`: by the gate or in the approval, the payload's `why`
    says by which.

    Args:
        spec: The sweep's spec.
        outcome: What it gave, with the verdict.
        gate: What its best had to show.
        is_judged: Whether it is champion only once its model is released: `tell_judgement`.
    """
    from raysweep.pipeline import handed_on
    from raysweep.pipeline.approval import champion_line

    verdict = outcome.gate
    assert verdict is not None
    line, payload = champion_line(spec, gate), brief(handed_on(outcome))
    related = {
        "sweep": resource_of("sweep", outcome.sweep_id),
        "gate": resource_of("sweep", verdict.sweep_id),
        "replaced": resource_of("sweep", verdict.champion.sweep_id if verdict.champion is not None else ""),
    }
    decision = verdict.approval.decision if verdict.approval is not None else None
    is_champion = verdict.promoted and not is_judged
    if verdict.promoted and decision is not None:
        said = ["approved", *(["promoted"] if is_champion else [])]
    elif is_champion:
        said = ["promoted"]
    else:
        said = ["proposed"] if verdict.promoted or verdict.is_waiting else ["rejected"]
    for what in said:
        once = f"{outcome.uri}/{verdict.gate_id}"
        emit("champion", slug(line.name), what, payload, name=line.name, related=related, once=once)
    if is_champion:
        materialize("champion", line.name, payload, made_from=(asset_uri("sweep", spec.name),))


def named_night(outcome: rs.SweepOutcome | Mapping[str, Any]) -> dict[str, Any]:
    """The fields that name a night whose gate has decided: enough for all that reads the storage."""
    if not isinstance(outcome, rs.SweepOutcome):
        return dict(outcome)
    gate = {"gate_id": outcome.gate.gate_id} if outcome.gate is not None else None
    return {"uri": outcome.uri, "name": outcome.name, "gate": gate}


def tell_judgement(line: Line, night: Mapping[str, Any]) -> None:
    """Tell of the judgement of a night's model, and of the decision where it needs approval.

    `promoted`: it is released, and the champion's asset is new; `proposed`: it passed, and waits for
    approval; `approved`; `rejected`: by the judge or in the approval; `undecided`: it could not be told
    whether it is good enough. The payload has `judgement`.

    Args:
        line: Which champions.
        night: The night, as `named_night` has it.

    Raises: StorageError: It cannot be read.
    """
    from raysweep.pipeline.candidate import judged_brief

    payload = judged_brief(night)
    judgement, approval = payload["judgement"], payload["judgement"]["approval"]
    related = {
        "sweep": resource_of("sweep", payload["sweep_id"]),
        "gate": resource_of("sweep", payload["gate"]["sweep_id"]),
        "judge": resource_of("sweep", judgement["sweep_id"]),
    }
    is_decided = approval is not None and approval["decision"] is not None
    if payload["released"]:
        said = [*(["approved"] if is_decided else []), "promoted"]
    elif approval is not None and not is_decided:
        said = ["proposed"]
    else:
        said = ["undecided" if judgement["verdict"] == "undecided" else "rejected"]
    once = f"{payload['uri']}/{payload['gate']['gate_id']}/{judgement['judge_id']}"
    for what in said:
        emit("champion", slug(line.name), what, payload, name=line.name, related=related, once=once)
    if payload["released"]:
        materialize("champion", line.name, payload, made_from=(asset_uri("sweep", payload["name"]),))


def tell_rollback(line: Line, payload: Mapping[str, Any], *, champion: str, replaced: str, once: str) -> None:
    """Tell that an earlier champion is champion again.

    Args:
        line: Which champions.
        payload: Plain JSON data: the champion, by whom and why.
        champion, replaced: The sweeps of both.
        once: What makes this rollback one of a kind.
    """
    related = {"sweep": resource_of("sweep", champion), "replaced": resource_of("sweep", replaced)}
    emit("champion", slug(line.name), "rolled_back", payload, name=line.name, related=related, once=once)
    materialize("champion", line.name, payload)


def asset_uri(kind: str, name: str) -> str:
    """`raysweep://flights/best-config`: the same every night, so that lineage is by name."""
    return f"raysweep://{slug(name)}/{_ASSETS[kind]}"


def source_of(given: rs.SweepOutcome | Mapping[str, Any] | None) -> tuple[str, str]:
    """The name and the id of the sweep that a training's config comes from; empty where there is none."""
    if given is None:
        return "", ""
    if isinstance(given, rs.SweepOutcome):
        return given.name, given.sweep_id
    return str(given.get("name", "")), str(given.get("sweep_id", ""))


def materialize(
    kind: str, name: str, metadata: Mapping[str, Any], *, made_from: tuple[str, ...] = ()
) -> bool:
    """Say that this task has made the asset of this sweep or training, as `@materialize` would.

    The asset's name is known only once the task has its spec, so this is done inside of it. A Prefect without
    assets, or no task at all, is no reason to fail: it is logged at debug level. Returns whether it was done.

    Args:
        kind: `sweep`, `train` or `champion`.
        name: The name of the sweep, training or champion, as its spec says.
        metadata: Plain JSON data that is shown with this version of the asset.
        made_from: The assets that it was made from.
    """
    try:
        from prefect.assets import Asset
        from prefect.context import AssetContext

        context = AssetContext.get()
        if context is None:
            LOG.debug("no asset %s: this is not a task", asset_uri(kind, name))
            return False
        asset = Asset(key=asset_uri(kind, name))
        context.downstream_assets.add(asset)
        context.materialized_by = "raysweep"
        context.add_asset_metadata(asset.key, dict(metadata))
        context.direct_asset_dependencies.update(Asset(key=each) for each in made_from)
        context.update_tracked_assets()
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        LOG.debug("no asset %s: %s", asset_uri(kind, name), error)
        return False
    return True
