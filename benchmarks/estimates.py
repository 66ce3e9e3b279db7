"""`python -m benchmarks estimates`: what is expected half-way through simulated nights, and what came true.

Each night is simulated whole, with the fleet, the workers' machine and the journal (`raysweep.simulate`).
Its journal up to a moment is then replayed, and the rest is estimated from that alone.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import Any

from benchmarks.measure import Json, target
from raysweep.core import SweepState, step
from raysweep.core.vocabulary.events import Event
from raysweep.errors import RaysweepError
from raysweep.estimates import Seen, estimate_rest
from raysweep.simulate import Costs, WorkerDied, simulate
from raysweep.simulate.nodes import Node, Nodes
from raysweep.simulate.simulation import Running
from raysweep.specs import SweepSpec

KINDS = (
    "asha",
    "fifo",
    "pbt",
    "lognormal",
    "lengths",
    "failures",
    "slow-node",
    "median",
    "hyperband",
    "promotion",
    "tpe",
)
MAX_T = 27
NIGHTS = 110
HALF = 0.5
COVERED = (0.7, 0.9)
MAX_ERROR = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """One night: its spec, its journal, how many trials it has."""

    kind: str
    seed: int
    spec: SweepSpec
    journal: Sequence[Event]
    total: int

    @property
    def end_at(self) -> float:
        """When it ended."""
        return self.journal[-1].at


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """An estimate beside what came true.

    `error`: of the end, as a share of the night's length; `error_of_rest`: as a share of what was left of it.
    """

    kind: str
    error: float
    error_of_rest: float
    is_covered: bool


def make_night(kind: str, seed: int) -> Night:
    """A night of a kind. Another seed has other numbers of trials and slots, other steps and curves."""
    random = Random(f"{kind}/{seed}")
    trials, slots = random.randrange(40, 150), random.randrange(3, 13)
    spread = random.uniform(0.5, 0.9) if kind == "lognormal" else random.uniform(0.1, 0.5)
    base_s = math.exp(random.uniform(math.log(2.0), math.log(120.0)))
    nodes = max(1, slots // 3)
    slow = random.uniform(1.8, 3.5) if kind == "slow-node" else 1.0
    fails = random.uniform(0.01, 0.03) if kind == "failures" else 0.0
    where: dict[float, str] = {}

    def steps(config: Mapping[str, Any], iteration: int) -> float:
        x = config["x"]
        own = math.exp(Random(f"{seed}/{x}").gauss(0.0, spread))
        each = math.exp(Random(f"{seed}/{x}/{iteration}").gauss(0.0, 0.3))
        return base_s * own * each * (slow if where.get(x) == "node0" else 1.0)

    def length(x: float) -> int:
        if kind in ("lengths", "failures", "slow-node", "fifo", "tpe", "lognormal"):
            return Random(f"{seed}/{x}/n").randrange(6, 28) if kind == "lengths" else MAX_T // 2
        return MAX_T

    tries: dict[tuple[float, int], int] = {}

    def curve(config: Mapping[str, Any], iteration: int) -> dict[str, Any] | None:
        x = config["x"]
        if iteration > length(x):
            return None
        count = tries[x, iteration] = tries.get((x, iteration), 0) + 1
        chance = Random(f"{seed}/{x}/{iteration}/{count}/f").random()
        if chance < fails / 3:
            raise WorkerDied
        if chance < fails:
            raise ValueError("as planned")
        noise = Random(f"{seed}/{x}/{iteration}/v").gauss(0.0, 0.03)
        return {"loss": (x - 0.3) ** 2 + 1.0 / iteration + noise}

    schedulers: dict[str, Any] = {
        "asha": {"asha": {"max_t": MAX_T, "grace_period": 1, "reduction_factor": 3}},
        "promotion": {"asha": {"max_t": MAX_T, "reduction_factor": 3, "type": "promotion"}},
        "hyperband": {"hyperband": {"max_t": MAX_T, "reduction_factor": 3}},
        "median": {"median_stopping": {"grace_period": 4, "min_samples_required": 5}},
        "pbt": {"pbt": {"perturbation_interval": 4, "hyperparam_mutations": ["x"]}},
    }
    spec = SweepSpec.model_validate(
        {
            "name": f"night-{kind}",
            "trainable": "toys.module:train",
            "param_space": {"x": {"uniform": [0, 1]}},
            "metric": "loss",
            "mode": "min",
            "num_samples": slots if kind == "pbt" and seed % 2 else trials,
            "scheduler": schedulers.get(kind, "fifo"),
            "search": {"tpe": {"n_startup_trials": 8}} if kind == "tpe" else "random",
            "failure": {"max_failures": 2},
            "stop": {"trial": {"training_iteration": MAX_T}} if kind == "pbt" else {},
            "seed": seed,
            "storage_path": "memory://nights",
        }
    )

    def watch(running: Running) -> None:
        trials = running.cluster._trials
        begin = trials._begin

        def begun(actor: Any) -> None:
            job = actor.process.next
            where[job.config["x"]] = actor.node.name
            begin(actor)

        trials._begin = begun  # type: ignore[method-assign]

    shares = [slots // nodes + (number < slots % nodes) for number in range(nodes)]
    simulated = simulate(
        spec,
        curve,
        step_s=steps,
        nodes=Nodes(all=[Node(name=f"node{number}", cpus=cpus) for number, cpus in enumerate(shares)]),
        costs=Costs(start_worker_s=random.uniform(5.0, 60.0), jitter=0.1),
        save_every=1 if kind in ("pbt", "promotion", "hyperband") else random.choice((0, 4)),
        seed=seed,
        disturb=watch,
    )
    return Night(kind=kind, seed=seed, spec=spec, journal=simulated.journal, total=spec.num_samples or 0)


def judge(
    night: Night, *, share: float = HALF, cpu_s: float = 0.3, clock: Callable[[], float] = time.thread_time
) -> Judged | None:
    """Estimate a night's end from its journal up to a share of its time; None where nothing can be said."""
    begin = night.journal[0].at
    now = begin + share * (night.end_at - begin)
    state, seen = SweepState.create(night.spec, night.spec.seed or 0), Seen()
    for event in night.journal[: bisect_right([event.at for event in night.journal], now)]:
        step(state, event)
        seen.take(state, event)
    estimate = estimate_rest(state, now=now, total=night.total, curves=seen.curves, cpu_s=cpu_s, clock=clock)
    if estimate is None:
        return None
    left = night.end_at - now
    return Judged(
        kind=night.kind,
        error=(estimate.end_at.expected - night.end_at) / (night.end_at - begin),
        error_of_rest=(estimate.end_at.expected - night.end_at) / left,
        is_covered=estimate.end_at.low <= night.end_at <= estimate.end_at.high,
    )


def make_nights(count: int, kinds: Sequence[str] = KINDS) -> Iterator[Night]:
    """So many nights, the kinds in turn. One that its kind's chance lets fail is left out."""
    for number in range(count):
        try:
            yield make_night(kinds[number % len(kinds)], number // len(kinds))
        except RaysweepError:
            continue


def figures(judged: Sequence[Judged | None]) -> dict[str, Any]:
    """Coverage and median error, of all and by kind."""

    def of(each: Sequence[Judged | None]) -> dict[str, Any]:
        known = [judged for judged in each if judged is not None]
        return {
            "nights": len(each),
            "without": len(each) - len(known),
            "covered": sum(judged.is_covered for judged in known) / max(1, len(known)),
            "median_error": median(abs(judged.error) for judged in known) if known else None,
            "median_error_of_rest": median(abs(judged.error_of_rest) for judged in known) if known else None,
            "bias": median(judged.error for judged in known) if known else None,
        }

    kinds = dict.fromkeys(each.kind for each in judged if each is not None)
    by_kind = {
        kind: of([each for each in judged if each is not None and each.kind == kind]) for kind in kinds
    }
    return {**of(judged), "by_kind": by_kind}


def run(rounds: int, nights: int = NIGHTS) -> Json:
    """Judge the estimates half-way through so many nights; `rounds` is not used, as nothing is timed."""
    found = figures([judge(night) for night in make_nights(nights)])
    covered, error = found["covered"], found["median_error_of_rest"]
    return {
        "half_way": found,
        "targets": [
            target("at least 70 % of the ends in their 80 % interval", covered, at_least=COVERED[0]),
            target("at most 90 % of the ends in their 80 % interval", covered, at_most=COVERED[1]),
            target("median error of the time left", error, at_most=MAX_ERROR),
        ],
    }
