"""What other flows can react to: events of sweeps and trainings, and assets where the server shows them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from prefect.events import emit_event

from raysweep.specs.identity import slug

LOG: Final = logging.getLogger("prefect.raysweep")


def emit(kind: str, run_id: str, what: str, payload: Mapping[str, Any], *, name: str) -> None:
    """Emit `raysweep.<kind>.<what>` about the resource `raysweep.<kind>.<run_id>`.

    Args:
        kind: `sweep` or `train`.
        run_id: The id of the sweep or the training run.
        what: `started`, `new_best`, `completed`, `failed`, `cancelled`.
        payload: Plain JSON data; at an end the outcome's brief.
        name: The name of the sweep or training, as its spec says.
    """
    resource = {
        "prefect.resource.id": f"raysweep.{kind}.{run_id}",
        "prefect.resource.name": name,
        "raysweep.name": name,
    }
    try:
        emit_event(event=f"raysweep.{kind}.{what}", resource=resource, payload=dict(payload))
    except Exception:  # a sweep does not fail for want of an event
        LOG.warning("the event raysweep.%s.%s of %s was not sent", kind, what, run_id, exc_info=True)


def asset_uri(kind: str, name: str) -> str:
    """`raysweep://flights/best-config`: the same every night, so that lineage is by name."""
    return f"raysweep://{slug(name)}/{'best-config' if kind == 'sweep' else 'model'}"


def materialize(kind: str, name: str, metadata: Mapping[str, Any], *, made_from: str = "") -> bool:
    """Say that this task has made the asset of this sweep or training, as `@materialize` would.

    The asset's name is known only once the task has its spec, so this is done inside of it. A Prefect without
    assets, or no task at all, is no reason to fail: it is logged at debug level. Returns whether it was done.

    Args:
        kind: `sweep` or `train`.
        name: The name of the sweep or training, as its spec says.
        metadata: Plain JSON data that is shown with this version of the asset.
        made_from: The name of the sweep that a training got its config from.
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
        if made_from:
            context.direct_asset_dependencies.add(Asset(key=asset_uri("sweep", made_from)))
        context.update_tracked_assets()
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        LOG.debug("no asset %s: %s", asset_uri(kind, name), error)
        return False
    return True
