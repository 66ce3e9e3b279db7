"""Outlets of gate, judge and approval: an event for each promotion, and the champion in the asset's state.

The champion's file is the truth (`raysweep.runs.across_runs.champions`). When a gate
or an approval ends, its assets get what is in that file: a rollback shows after the next night.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import Asset

from raysweep_airflow.ends import extra_of

if TYPE_CHECKING:
    from raysweep.runs.across_runs.champions import Champion

STATE_KEY: Final = "champion"
"""In the asset's state store; of a data set that the gate names `champion.<data set>`."""
LONGEST_KEY: Final = 250
"""Of a partition, by Airflow."""


def announce(operator: Any, context: Any, result: Mapping[str, Any]) -> None:
    """Give each outlet its event where tonight's candidate was promoted, and none where it was not.

    Args:
        operator: The gate, the judge or the approval, as it runs.
        context: The task's.
        result: What it hands on.

    Raises: StorageError.
    """
    assets = [each for each in operator.outlets if isinstance(each, Asset)]
    if not assets:
        return
    champion = _champion(result)
    fields = _fields(champion) if champion is not None else {}
    sweep_id = str(result.get("uri", "")).rpartition("/")[2]
    # A task that is cleared later may find that another night has promoted since.
    is_new = result.get("promoted") is True and fields.get("sweep_id") == sweep_id
    for asset in assets:
        if fields:
            _store(operator, context, asset, fields)
        if is_new:
            event = context["outlet_events"][asset]
            event.extra = {**extra_of(result), "champion": fields}
            if fields["data"] and hasattr(event, "add_partitions"):
                event.add_partitions(fields["data"][:LONGEST_KEY])
    if not is_new:
        # Airflow makes an event for each outlet that the task still has when it ends.
        operator.outlets = [each for each in operator.outlets if not isinstance(each, Asset)]


def _champion(result: Mapping[str, Any]) -> Champion | None:
    """The champion of the line that the gate decided in."""
    from raysweep.pipeline.registering import find_line
    from raysweep.runs.across_runs.champions import read_champion
    from raysweep.storage.objects.opening import open_store

    gate = result.get("gate")
    if not isinstance(gate, Mapping) or not result.get("uri"):
        return None
    storage, _, sweep_id = str(result["uri"]).rpartition("/")
    store = open_store(storage)
    line = find_line(store, str(result.get("name", "")), sweep_id, str(gate.get("gate_id", "")))
    return read_champion(store, line).champion if line is not None else None


def _fields(champion: Champion) -> dict[str, Any]:
    """The facts about a champion for a DAG that follows."""
    from raysweep.runs.across_runs.records import release_id

    named = ("name", "metric", "mode", "data", "mean", "config", "sweep_id", "trial_id", "key", "at")
    fields = champion.model_dump(mode="json", include={*named, "code_digest", "spec_digest"})
    identity = release_id(champion.line, champion.sweep_id, champion.at)
    return {"id": identity, **fields, "uri": champion.checkpoint_uri or ""}


def _store(operator: Any, context: Any, asset: Asset, fields: dict[str, Any]) -> None:
    """Keep the champion in the asset's state, since Airflow 3.3. It is a copy: a failure is logged."""
    stores = context.get("asset_state_store")
    if stores is None:
        return
    from airflow.sdk.exceptions import AirflowRuntimeError

    key = f"{STATE_KEY}.{fields['data']}" if fields["data"] else STATE_KEY
    try:
        stores[asset].set(key, fields)
    except AirflowRuntimeError as error:
        operator.log.warning("the state of asset %s was not written: %s", asset.name, error)
