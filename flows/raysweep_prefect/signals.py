"""What other flows can react to: events of sweeps, trainings and champions, and assets.

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


def tell_verdict(spec: rs.SweepSpec, outcome: rs.SweepOutcome, gate: GateSpec) -> None:
    """Tell of a gate's verdict, and of the decision where it needs approval; a new champion is an asset.

    `raysweep.champion.proposed`: it passed, and waits for approval; `approved`; `promoted`: it is champion;
    `rejected`: by the gate or in the approval, the payload's `why` says by which.

    Args:
        spec: The sweep's spec.
        outcome: What it gave, with the verdict.
        gate: What its best had to show.
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
    if verdict.is_waiting:
        said = ["proposed"]
    elif verdict.promoted:
        said = ["approved", "promoted"] if decision is not None else ["promoted"]
    else:
        said = ["rejected"]
    for what in said:
        once = f"{outcome.uri}/{verdict.gate_id}"
        emit("champion", slug(line.name), what, payload, name=line.name, related=related, once=once)
    if verdict.promoted:
        materialize("champion", line.name, payload, made_from=(asset_uri("sweep", spec.name),))


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
