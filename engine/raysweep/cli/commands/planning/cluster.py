"""`raysweep plan --cluster`: a cluster by description, what fits on its nodes, and what never does."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from raysweep.cluster.gpu_shares import find_share
from raysweep.cluster.ray.preflight import Node, place_slots, show
from raysweep.documents.sizes import to_bytes
from raysweep.errors import InfeasibleResourcesError, RaysweepError, SpecError
from raysweep.specs import SweepSpec
from raysweep.specs.pipeline import PipelineSpec
from raysweep.training.feasibility import check_scaling

FIELD: Final = "--cluster"
CPUS_A_GPU: Final = 16
MEMORY_A_CPU: Final = 4 * 2**30
DRAWN: Final = 500
_GIB: Final = 2**30
_GPU_GIB: Final = {
    "A10": 24,
    "A10G": 24,
    "A100": 80,
    "A100-40": 40,
    "B200": 192,
    "GH200": 96,
    "H100": 80,
    "H200": 141,
    "L4": 24,
    "L40S": 48,
    "T4": 16,
    "V100": 16,
}
"""Memory of a GPU, in GiB, by its name."""
_NODE: Final = re.compile(r"(?:(\d+)x)?(?:(\d+)x)?([A-Za-z][\w.-]*)((?:\+[\w.]+)*)")
_FIX: Final = (
    "write kinds of nodes such as 2xCPU64 (two nodes of 64 CPUs), 8xH100 (one node of eight GPUs),"
    " 4x8xH100+CPU192+1024GiB (four of these, with their CPUs and memory)"
)


def parse_cluster(text: str) -> list[Node]:
    """The nodes of `8xH100,2xCPU64`. Raises: SpecError."""
    nodes: list[Node] = []
    for part in text.split(","):
        found = _NODE.fullmatch(part.strip())
        if found is None:
            raise SpecError(FIELD, f"{part.strip()!r} is not a kind of node", _FIX)
        kind, extra = found[3], [each for each in found[4].split("+") if each]
        name = part.strip()
        if re.fullmatch(r"CPU\d+", kind):
            if found[2] is not None:
                raise SpecError(FIELD, f"{name!r} has two counts for CPUs", _FIX)
            count, total = int(found[1] or 1), {"CPU": float(kind[3:])}
        elif kind.upper() in _GPU_GIB:
            numbers = [int(each) for each in (found[1], found[2]) if each is not None]
            gpus, count = (numbers[-1] if numbers else 1), (numbers[0] if len(numbers) > 1 else 1)
            total = {"GPU": float(gpus), "CPU": float(CPUS_A_GPU * gpus)}
        else:
            raise SpecError(FIELD, f"{kind!r} is not a known GPU", f"use {', '.join(_GPU_GIB)}")
        total |= _extra(extra, name)
        total.setdefault("memory", total["CPU"] * MEMORY_A_CPU)
        if count < 1 or min(total.values()) <= 0:
            raise SpecError(FIELD, f"{name!r} has nothing", _FIX)
        nodes += [Node(name=name, total=total, labels={}) for _ in range(count)]
    return nodes


def _extra(parts: Sequence[str], name: str) -> dict[str, float]:
    total = {}
    for part in parts:
        if re.fullmatch(r"CPU\d+", part):
            total["CPU"] = float(part[3:])
            continue
        try:
            total["memory"] = float(to_bytes(part))
        except ValueError:
            problem = f"{part!r} of {name!r} is neither a number of CPUs nor a size of memory"
            raise SpecError(FIELD, problem, _FIX) from None
    return total


def gpu_part(spec: SweepSpec, nodes: Sequence[Node]) -> tuple[SweepSpec, str]:
    """The spec with the part of a GPU that its `gpu_memory` is on these nodes, and how that came.

    Raises: InfeasibleResourcesError.
    """
    wanted = spec.resources.gpu_memory_bytes
    if wanted is None:
        return spec, ""
    sizes = [
        (node.name, _GPU_GIB[kind.upper()] * _GIB)
        for node in nodes
        for kind in re.split(r"[x+]", node.name)
        if kind.upper() in _GPU_GIB
    ]
    share = find_share(wanted, sizes)
    return spec.replace(resources=spec.resources.with_gpu_part(share.part)), str(share)


def packing(spec: SweepSpec, nodes: Sequence[Node], limit: int | None) -> tuple[str, ...]:
    """A line for each kind of node: how many trials it holds, and from which figure one more would fit.

    Raises: InfeasibleResourcesError: not one fits.
    """
    if spec.is_inline:
        return ()
    placed = place_slots(spec.shape, nodes, None)
    kinds: dict[str, list[int]] = {}
    for place, node in enumerate(nodes):
        kinds.setdefault(node.name, []).append(place)
    lines = []
    for name, places in kinds.items():
        bundles = [bundle for slot in placed for place, bundle in slot if place in places]
        whole = [slot for slot in placed if all(place in places for place, _ in slot)]
        head = f"{name} ({len(places)} node{'s' * (len(places) != 1)}, each {_totals(nodes[places[0]])})"
        if not bundles:
            lines.append(f"{head}: nothing fits: {_missing(spec, nodes[places[0]])}")
            continue
        what = _count(len(whole), "trial")
        if len(bundles) > sum(map(len, whole)):
            what += f", {_count(len(bundles), 'bundle')} in all"
        lines.append(f"{head}: {what}{_a_card(bundles, nodes, places)}{_one_more(spec, nodes[places[0]])}")
    used = len(placed) if limit is None else min(limit, len(placed))
    if used < len(placed):
        lines.append(f"max_concurrent_trials: {limit} uses {used} of these {len(placed)} places")
    return tuple(lines)


def never_placed(
    spec: SweepSpec, nodes: Sequence[Node], pipeline: PipelineSpec | None = None
) -> tuple[str, ...]:
    """The requests that no node can hold: sizes of trials that depend on the config, training workers."""
    found = []
    totals = [node.total for node in nodes]
    if spec.needs:
        random, beyond = Random(0), []
        for _ in range(DRAWN):
            config = spec.space.sample(random)
            asked = {
                need.name: amount for need in spec.needs if (amount := _amount(need, config)) is not None
            }
            too_much = [
                f"{name}: {amount:g}"
                for name, amount in asked.items()
                if amount > max((each.get(_ray_name(name), math.inf) for each in totals), default=math.inf)
            ]
            if too_much:
                beyond.append(too_much[0])
        if beyond:
            share = f"{len(beyond)} of {DRAWN} drawn configs"
            found.append(f"{share} ask for more than any node has, such as {beyond[0]}")
    train = pipeline.train if pipeline is not None else None
    if train is not None:
        try:
            check_scaling(train.scaling, totals)
        except InfeasibleResourcesError as error:
            found.append(f"train: {error.field}: {error.problem}")
    return tuple(found)


def _amount(need: object, config: Mapping[str, object]) -> float | None:
    try:
        value: float | None = need.of(config)  # type: ignore[attr-defined]
    except RaysweepError:
        return None
    return value


def _ray_name(name: str) -> str:
    return {"cpu": "CPU", "gpu": "GPU"}.get(name, name.removeprefix("custom."))


def _totals(node: Node) -> str:
    parts = [f"{node.total[name]:g} {name}s" for name in ("GPU", "CPU") if name in node.total]
    return ", ".join([*parts, f"{node.total['memory'] / _GIB:.4g} GiB"])


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _missing(spec: SweepSpec, node: Node) -> str:
    for bundle in spec.shape.bundles:
        for name, amount in bundle.items():
            if amount > node.total.get(name, 0.0):
                return f"a trial asks for {show({name: amount})}"
    return "other nodes hold all that there are"


def _a_card(bundles: Sequence[Mapping[str, float]], nodes: Sequence[Node], places: Sequence[int]) -> str:
    each = {bundle["GPU"] for bundle in bundles if 0.0 < bundle.get("GPU", 0.0) < 1.0}
    if not each or not nodes[places[0]].total.get("GPU"):
        return ""
    return f", {math.floor(1.0 / max(each) + 1e-6)} to a card"


def _one_more(spec: SweepSpec, node: Node) -> str:
    """`; one more would fit from cpu: 7.1 down`, of a trial of one bundle."""
    bundles = spec.shape.bundles
    if len(bundles) != 1:
        return ""
    fits = {
        name: math.floor(node.total.get(name, 0.0) / amount + 1e-6)
        for name, amount in bundles[0].items()
        if amount > 0
    }
    most = min(fits.values(), default=0)
    if not most:
        return ""
    names = [name for name, count in fits.items() if count == most]
    figures = []
    for name in names:
        if name == "GPU" and bundles[0][name] <= 1.0:
            cards = node.total[name]
            figure = 1.0 / (math.floor(1.0 / bundles[0][name] + 1e-6) + 1)
            most = math.floor(cards * math.floor(1.0 / bundles[0][name] + 1e-6))
        else:
            figure = node.total[name] / (most + 1)
        field = {"CPU": "cpu", "GPU": "gpu"}.get(name, name)
        shown = f"{figure / _GIB:.4g}GiB" if name == "memory" else f"{math.floor(figure * 1000) / 1000:g}"
        figures.append(f"{field}: {shown}")
    return f"; more would fit from {' and '.join(figures)} down"
