"""Checks before the start whether the workers of a training can ever be placed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

from raysweep.errors import InfeasibleResourcesError
from raysweep.raycompat.labels import has_labels
from raysweep.specs import Scaling

Totals = Mapping[str, float]


def check_scaling(scaling: Scaling, nodes: Sequence[Totals], *, beside: float = 0.0) -> None:
    """Refuse workers that the nodes could not hold even if they were idle.

    Args:
        scaling: The workers, all alike.
        nodes: Each node's total resources, in Ray's keys.
        beside: How many CPUs must be left for the tasks that read the data sets.

    Raises:
        InfeasibleResourcesError: With what was asked for and what there is.
    """
    bundle = scaling.worker_bundle()
    room = [_how_many(bundle, node) for node in nodes]
    fits = {
        "PACK": sum(room),
        "SPREAD": sum(room),
        "STRICT_PACK": max(room, default=0),
        "STRICT_SPREAD": sum(1 for count in room if count),
    }[scaling.placement_strategy]
    wanted = scaling.min_workers or scaling.max_workers
    if fits >= wanted:
        _check_beside(wanted, bundle, nodes, beside)
        return
    where = {"STRICT_PACK": " on one node", "STRICT_SPREAD": " on nodes of their own"}
    asked = f"{wanted} worker{'s' * (wanted > 1)} of {_show(bundle)}"
    fewer = f"{fits} or less" if scaling.min_workers is None else f"[{fits}, {scaling.max_workers}]"
    raise InfeasibleResourcesError(
        "scaling",
        f"{asked} can never run{where.get(scaling.placement_strategy, '')}: there is room for {fits} on "
        f"{_show_nodes(nodes, bundle)}",
        f"set num_workers to {fewer}, or add nodes"
        if fits
        else "ask for less in scaling.resources, or add nodes that have it",
    )


def _check_beside(workers: int, bundle: Totals, nodes: Sequence[Totals], beside: float) -> None:
    cpus = sum(node.get("CPU", 0.0) for node in nodes)
    taken = workers * bundle.get("CPU", 0.0)
    if not beside or cpus - taken >= beside:
        return
    raise InfeasibleResourcesError(
        "datasets",
        f"Ray Data reads on CPUs beside the workers', and {workers} of {_show(bundle)} leave "
        f"{max(cpus - taken, 0.0):g} of {cpus:g}",
        "ask for fewer workers, or less CPU in scaling.resources, or add nodes",
    )


def check_cluster(scaling: Scaling, *, beside: float = 0.0) -> None:
    """As `check_scaling`, for the nodes of the connected cluster, unless an autoscaler may add others."""
    from raysweep.raycompat.cluster import can_grow

    if not can_grow():
        nodes = live_nodes()
        check_nodes(scaling, nodes)
        check_scaling(scaling, [node["Resources"] for node in nodes], beside=beside)


def check_nodes(scaling: Scaling, nodes: Sequence[Mapping[str, Any]]) -> None:
    """As `check_scaling`, for nodes as `ray.nodes()` shows them: only those with the labels count."""
    labels = [node.get("Labels", {}) for node in nodes]
    meant = [has_labels(each, scaling.label_selector) for each in labels]
    if not any(meant):
        raise InfeasibleResourcesError(
            "scaling.label_selector",
            f"no live node has the labels {scaling.label_selector}",
            f"the nodes' labels are {labels[:5]}",
        )
    check_scaling(scaling, [node["Resources"] for node in compress(nodes, meant)])


def live_nodes() -> list[dict[str, Any]]:
    """The live nodes of the connected cluster, as Ray shows them."""
    import ray

    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node for node in nodes if node["Alive"]]


def machine_totals(bundle: Totals) -> Totals:
    """The resources in `bundle` that an embedded Ray will find on this machine."""
    from raysweep.raycompat.machine import count_cpus, count_gpus

    totals = dict.fromkeys(bundle, 0.0) | {"CPU": count_cpus()}
    if "GPU" in bundle:
        totals["GPU"] = count_gpus()
    for name in ("memory", "object_store_memory"):
        if name in bundle:
            totals[name] = float("inf")  # Ray decides at its start; checked again then
    return totals


def _how_many(bundle: Totals, node: Totals) -> int:
    return int(min((node.get(name, 0.0) / amount + 1e-6 for name, amount in bundle.items()), default=0))


def _show(resources: Totals) -> str:
    return "{" + ", ".join(f"{name}: {amount:g}" for name, amount in resources.items()) + "}"


def _show_nodes(nodes: Sequence[Totals], bundle: Totals) -> str:
    shown = [_show({name: node.get(name, 0.0) for name in bundle}) for node in nodes]
    more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
    return f"{len(shown)} node{'s' * (len(shown) != 1)}: " + ", ".join(shown[:3]) + more
