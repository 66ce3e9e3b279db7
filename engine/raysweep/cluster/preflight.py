"""Before anything starts: can this cluster hold one trial at all, and how many at once?

Pure arithmetic on what the nodes have in all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raysweep.errors import InfeasibleResourcesError
from raysweep.spec import Resources, SweepSpec

Bundle = Mapping[str, float]
MAX_SLOTS = 10_000
_EPSILON = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A live node: what it has in all, in Ray's keys, and its labels."""

    name: str
    total: Mapping[str, float]
    labels: Mapping[str, str]
    node_id: str = ""


def count_slots(resources: Resources, nodes: Sequence[Node], limit: int | None = None) -> int:
    """How many placement groups of these resources fit on the nodes at once, `limit` at most.

    Raises:
        InfeasibleResourcesError: not even one fits; says what was asked for and what the largest node has.
    """
    bundles = resources.to_bundles()
    usable = [node for node in nodes if _has_labels(node, resources.label_selector)]
    if not usable:
        raise InfeasibleResourcesError(
            "resources.label_selector",
            f"no live node has the labels {resources.label_selector}",
            f"the nodes' labels are {[dict(node.labels) for node in nodes][:5]}",
        )
    for number, bundle in enumerate(bundles):
        _check_bundle(bundle, number, len(bundles), usable)
    free = [dict(node.total) for node in usable]
    slots, most = 0, min(limit or MAX_SLOTS, MAX_SLOTS)
    while slots < most and _place(bundles, free, resources.strategy):
        slots += 1
    if not slots:
        raise InfeasibleResourcesError(
            "resources",
            f"one trial asks for {show_all(bundles)} placed {resources.strategy},"
            f" which the cluster cannot hold: {_show_nodes(usable)}",
            "ask for less, choose another strategy, or add nodes",
        )
    return slots


def count_trials(spec: SweepSpec, nodes: Sequence[Node], limit: int | None = None) -> int:
    """How many trials of a sweep fit on the nodes at once, `limit` at most.

    Raises:
        InfeasibleResourcesError: Not even one fits; says it in the words of the spec.
    """
    scaling = spec.scaling
    try:
        return count_slots(spec.trial_resources, nodes, limit)
    except InfeasibleResourcesError as error:
        if scaling is None:
            raise
        asked = f"{scaling.num_workers} workers of {show(scaling.worker_bundle())}"
        name = error.field.rpartition(".")[2]
        name = next((key for key in scaling.worker_bundle() if _field(key).rpartition(".")[2] == name), "")
        if name:
            field, problem = f"scaling.resources_per_worker.{name}", error.problem.replace("trial", "worker")
            raise InfeasibleResourcesError(field, problem, error.fix) from None
        raise InfeasibleResourcesError(
            "scaling",
            f"one trial asks for {asked} placed {scaling.placement_strategy} at once,"
            f" which the cluster cannot hold: {_show_nodes(nodes)}",
            "ask for fewer or smaller workers, choose another placement_strategy, or add nodes",
        ) from None


def _check_bundle(bundle: Bundle, number: int, of: int, nodes: Sequence[Node]) -> None:
    if any(_fits(bundle, node.total) for node in nodes):
        return
    for name, amount in bundle.items():
        most = max(node.total.get(name, 0.0) for node in nodes)
        if amount > most + _EPSILON:
            where = "resources" if of == 1 else f"resources.bundles[{number}]"
            raise InfeasibleResourcesError(
                f"{where}.{_field(name)}",
                f"one trial asks for {_amount(name, amount)} {name};"
                f" the largest node has {_amount(name, most)}",
                f"ask for at most {_amount(name, most)}"
                if most
                else f"no node offers {name!r}: add one that does",
            )
    raise InfeasibleResourcesError(
        "resources",
        f"no node has {show(bundle)} together: {_show_nodes(nodes)}",
        "ask for less in one bundle, or split it",
    )


def _place(bundles: Sequence[Bundle], free: list[dict[str, float]], strategy: str) -> bool:
    """Take one group's bundles off the nodes; False (and nothing taken) if it does not fit."""
    if strategy == "STRICT_PACK":
        total: dict[str, float] = {}
        for bundle in bundles:
            for name, amount in bundle.items():
                total[name] = total.get(name, 0.0) + amount
        return _take(total, free, range(len(free))) is not None
    taken: list[tuple[int, Bundle]] = []
    for bundle in bundles:
        used = {index for index, _ in taken}
        spread = (
            [i for i in range(len(free)) if i not in used]
            if strategy == "STRICT_SPREAD"
            else range(len(free))
        )
        index = _take(bundle, free, spread)
        if index is None:
            for earlier, given in taken:
                for name, amount in given.items():
                    free[earlier][name] += amount
            return False
        taken.append((index, bundle))
    return True


def _take(bundle: Bundle, free: list[dict[str, float]], candidates: Sequence[int]) -> int | None:
    for index in candidates:
        if _fits(bundle, free[index]):
            for name, amount in bundle.items():
                free[index][name] -= amount
            return index
    return None


def _fits(bundle: Bundle, free: Mapping[str, float]) -> bool:
    return all(free.get(name, 0.0) + _EPSILON >= amount for name, amount in bundle.items())


def _has_labels(node: Node, selector: Mapping[str, str]) -> bool:
    """Ray's label selectors: a value, `!value`, `in(a,b)`, `!in(a,b)`."""
    return all(_matches(node.labels.get(key), wanted) for key, wanted in selector.items())


def _matches(value: str | None, wanted: str) -> bool:
    if wanted.startswith("!"):
        return not _matches(value, wanted[1:])
    if wanted.startswith("in(") and wanted.endswith(")"):
        return value in {part.strip() for part in wanted[3:-1].split(",")}
    return value == wanted


def _field(name: str) -> str:
    return {"CPU": "cpu", "GPU": "gpu", "memory": "memory"}.get(name, f"custom.{name}")


def _amount(name: str, amount: float) -> str:
    return f"{amount / 2**30:.3g} GiB of" if name == "memory" else f"{amount:g}"


def show(bundle: Bundle) -> str:
    return "{" + ", ".join(f"{name}: {_amount(name, amount)}" for name, amount in bundle.items()) + "}"


def show_all(bundles: Sequence[Bundle]) -> str:
    return " + ".join(show(bundle) for bundle in bundles)


def _show_nodes(nodes: Sequence[Node]) -> str:
    shown = [
        f"{node.name} has " + show({k: v for k, v in node.total.items() if not k.startswith("node:")})
        for node in nodes[:3]
    ]
    return "; ".join(shown) + (f"; and {len(nodes) - 3} more nodes" if len(nodes) > 3 else "")
