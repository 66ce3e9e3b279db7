"""Checks before the start whether the cluster can hold one trial, and how many at once.

Pure arithmetic on the total resources of the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from raysweep.errors import InfeasibleResourcesError
from raysweep.raycompat.labels import has_labels
from raysweep.specs import SweepSpec
from raysweep.specs.trial.shape import Bundle, Shape

Placed = list[tuple[int, Bundle]]
"""The bundles of one placement group, each with the place of its node."""
MAX_SLOTS = 10_000
_EPSILON = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A live node: what it has in all, in Ray's keys, and its labels."""

    name: str
    total: Mapping[str, float]
    labels: Mapping[str, str]
    node_id: str = ""


def count_slots(shape: Shape, nodes: Sequence[Node], limit: int | None = None) -> int:
    """The number of placement groups of this shape that fit on the nodes at once, `limit` at most.

    Raises:
        InfeasibleResourcesError: not even one fits; says what was asked for and what the largest node has.
    """
    slots = len(place_slots(shape, nodes, limit))
    if not slots:
        usable = [n for n in nodes if any(has_labels(n.labels, each) for each in shape.label_selectors)]
        raise InfeasibleResourcesError(
            shape.field,
            f"one trial asks for {show_all(shape.bundles)} placed {shape.strategy},"
            f" which the cluster cannot hold: {_show_nodes(usable)}",
            "ask for less, choose another strategy, or add nodes",
        )
    return slots


def place_slots(shape: Shape, nodes: Sequence[Node], limit: int | None = None) -> list[Placed]:
    """The bundles of each placement group with their places in `nodes`; empty: not even one fits.

    Raises:
        InfeasibleResourcesError: A bundle fits on no node; says what was asked for and what there is.
    """
    bundles, selectors = shape.bundles, shape.label_selectors
    usable = [node for node in nodes if any(has_labels(node.labels, selector) for selector in selectors)]
    may_hold = [
        _with_labels(usable, selector, nodes, field)
        for selector, field in zip(selectors, shape.label_fields, strict=True)
    ]
    for number, bundle in enumerate(bundles):
        _check_bundle(bundle, shape.fields[number], [usable[index] for index in may_hold[number]])
    free = [dict(node.total) for node in usable]
    places = [index for index, node in enumerate(nodes) if any(node is each for each in usable)]
    most = min(limit or MAX_SLOTS, MAX_SLOTS)
    slots: list[Placed] = []
    while len(slots) < most:
        taken = _place(bundles, free, shape.strategy, may_hold)
        if taken is None:
            break
        slots.append([(places[index], bundle) for index, bundle in taken])
    return slots


def _with_labels(
    usable: Sequence[Node], selector: Mapping[str, str], nodes: Sequence[Node], field: str
) -> list[int]:
    """The usable nodes, by their places, with these labels. Raises: InfeasibleResourcesError: none has."""
    found = [index for index, node in enumerate(usable) if has_labels(node.labels, selector)]
    if found:
        return found
    raise InfeasibleResourcesError(
        field,
        f"no live node has the labels {dict(selector)}",
        f"the nodes' labels are {[dict(node.labels) for node in nodes][:5]}",
    )


def count_trials(spec: SweepSpec, nodes: Sequence[Node], limit: int | None = None) -> int:
    """The number of trials of a sweep that fit on the nodes at once, `limit` at most; inline ones: 1.

    Raises:
        InfeasibleResourcesError: Not even one fits; says it in the words of the spec.
    """
    scaling = spec.scaling
    if spec.is_inline:
        return 1
    nodes = without_evaluations(spec, nodes)
    try:
        return count_slots(spec.shape, nodes, limit)
    except InfeasibleResourcesError as error:
        if spec.evaluate is not None:
            each = show(spec.evaluate.resources.to_bundle())
            beside = f"beside {spec.evaluate.slots} evaluations of {each}"
            raise InfeasibleResourcesError(
                error.field, f"{error.problem}, {beside}", f"{error.fix}, or for less in evaluate"
            ) from None
        if scaling is None or error.field != "scaling":
            raise
        asked = f"{scaling.max_workers} workers of {show(scaling.worker_bundle())}"
        asked += " beside their driver" if scaling.driver is not None else ""
        raise InfeasibleResourcesError(
            "scaling",
            f"one trial asks for {asked} placed {scaling.placement_strategy} at once,"
            f" which the cluster cannot hold: {_show_nodes(nodes)}",
            "ask for fewer or smaller workers, choose another placement_strategy, or add nodes",
        ) from None


def without_evaluations(spec: SweepSpec, nodes: Sequence[Node]) -> Sequence[Node]:
    """The nodes with what evaluations leave to trials: where there are others, not those with GPUs.

    Raises:
        InfeasibleResourcesError: They do not fit, even without trials.
    """
    asked = spec.evaluate
    if asked is None:
        return nodes
    bundle = asked.resources.to_bundle()
    free = [dict(node.total) for node in nodes]
    order = sorted(range(len(nodes)), key=lambda index: bool(free[index].get("GPU")) and "GPU" not in bundle)
    for count in range(asked.slots):
        if _take(bundle, free, order) is None:
            raise InfeasibleResourcesError(
                "evaluate.resources" if not count else "evaluate.slots",
                f"{asked.slots} evaluations at once ask for {show(bundle)} each: {_show_nodes(nodes)}",
                "ask for less, for fewer slots, or add nodes",
            )
    return [replace(node, total=left) for node, left in zip(nodes, free, strict=True)]


def _check_bundle(bundle: Bundle, where: str, nodes: Sequence[Node]) -> None:
    if any(_fits(bundle, node.total) for node in nodes):
        return
    is_workers = where == "scaling.resources"
    for name, amount in bundle.items():
        most = max(node.total.get(name, 0.0) for node in nodes)
        if amount > most + _EPSILON:
            raise InfeasibleResourcesError(
                where if where.endswith("data_cpus") else f"{where}.{_field(name)}",
                f"one {'worker' if is_workers else 'trial'} asks for {_amount(name, amount)} {name};"
                f" the largest node has {_amount(name, most)}",
                f"ask for at most {_amount(name, most)}"
                if most
                else f"no node offers {name!r}: add one that does",
            )
    raise InfeasibleResourcesError(
        where,
        f"no node has {show(bundle)} together: {_show_nodes(nodes)}",
        "ask for less in one bundle, or split it",
    )


def _place(
    bundles: Sequence[Bundle],
    free: list[dict[str, float]],
    strategy: str,
    may_hold: Sequence[Sequence[int]],
) -> Placed | None:
    """Take one group's bundles off the nodes, and say where each went; None, and nothing taken: no room.

    `may_hold`: the nodes that each of them may be placed on.
    """
    if strategy == "STRICT_PACK":
        total: dict[str, float] = {}
        for bundle in bundles:
            for name, amount in bundle.items():
                total[name] = total.get(name, 0.0) + amount
        everywhere = set(may_hold[0]).intersection(*may_hold)
        index = _take(total, free, sorted(everywhere))
        return None if index is None else [(index, bundle) for bundle in bundles]
    taken: list[tuple[int, Bundle]] = []
    for bundle, nodes in zip(bundles, may_hold, strict=True):
        used = {index for index, _ in taken}
        spread = [i for i in nodes if i not in used] if strategy == "STRICT_SPREAD" else nodes
        index = _take(bundle, free, spread)
        if index is None:
            for earlier, given in taken:
                for name, amount in given.items():
                    free[earlier][name] += amount
            return None
        taken.append((index, bundle))
    return taken


def _take(bundle: Bundle, free: list[dict[str, float]], candidates: Sequence[int]) -> int | None:
    for index in candidates:
        if _fits(bundle, free[index]):
            for name, amount in bundle.items():
                free[index][name] -= amount
            return index
    return None


def _fits(bundle: Bundle, free: Mapping[str, float]) -> bool:
    return all(free.get(name, 0.0) + _EPSILON >= amount for name, amount in bundle.items())


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
