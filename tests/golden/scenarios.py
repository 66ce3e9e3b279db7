"""The sweeps that `tests/golden/record.py` records, one for each feature of the core."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from raysweep.simulate import Costs, Curve, Kill, TrialHangs, TrialOverMemory, WorkerDied
from raysweep.simulate.nodes import Node, Nodes
from raysweep.simulate.simulation import Running
from raysweep.specs import SweepSpec
from raysweep.specs.continuing import Continue, Extension
from tests.unit.simulate.chaos import Drawn

GIB: Final = 2**30
LENGTH: Final = 9
LOOK_S: Final = 2.0
_RAISED: Final[dict[str, type[Exception]]] = {
    "raises": ValueError,
    "dies": WorkerDied,
    "hangs": TrialHangs,
    "memory": TrialOverMemory,
}
Score = Callable[[Mapping[str, Any], int], Mapping[str, Any]]


def make_spec(**fields: Any) -> SweepSpec:
    """A small sweep; `fields` replace its own."""
    plain: dict[str, Any] = {
        "name": "golden",
        "trainable": "toys.module:train",
        "param_space": {"x": {"uniform": [0, 1]}},
        "metric": "loss",
        "mode": "min",
        "num_samples": 20,
        "search": "random",
        "seed": 1,
        "failure": {"backoff_initial_s": 0.5, "max_failures": 2, "max_worker_deaths": 3},
    }
    return SweepSpec.model_validate(plain | fields)


def noise(*of: object) -> float:
    """A number in [0, 1) that depends on the arguments alone."""
    return blake2b(repr(of).encode(), digest_size=2).digest()[0] / 256


def loss(config: Mapping[str, Any], iteration: int) -> Mapping[str, Any]:
    """Curves that fall, and cross each other."""
    x = config["x"]
    wave = 0.1 * noise(round(x, 9), iteration)
    return {"loss": round((x - 0.3) ** 2 + x / iteration + wave, 6), "size": round(1 - x, 6)}


class Trainable:
    """A curve with faults: `faults` says how the call of this number fails, counted over all trials.

    `hopeless`: each trial whose noise is below this share raises a ValueError at its third report.
    """

    def __init__(
        self, score: Score = loss, length: int = LENGTH, *, faults: Mapping[int, str], hopeless: float = 0.0
    ) -> None:
        self._score = score
        self._length = length
        self._faults = dict(faults)
        self._hopeless = hopeless
        self._calls = 0

    def __call__(self, config: Mapping[str, Any], iteration: int) -> Mapping[str, Any] | None:
        self._calls += 1
        how = self._faults.pop(self._calls, None)
        if how is not None:
            raise _RAISED[how]("as asked")
        if iteration == 3 and noise("hopeless", config["x"]) < self._hopeless:
            raise ValueError("always")
        return None if iteration > self._length else self._score(config, iteration)


@dataclass(kw_only=True)
class Trouble:
    """Disturbs each controller: `acts` happen once, each at its virtual time."""

    acts: dict[float, str]
    nodes: Nodes

    def __call__(self, running: Running) -> None:
        """See `simulate(disturb=…)`."""
        running.clock.after(LOOK_S, lambda: self._look(running))
        for at in list(self.acts):
            running.clock.at(at, lambda at=at: self._act(running, at))  # type: ignore[misc]

    def _look(self, running: Running) -> None:
        if not running.controller.is_done and running.controller.state.phase in ("running", "stopping"):
            running.controller.look()
            running.clock.after(LOOK_S, lambda: self._look(running))

    def _act(self, running: Running, at: float) -> None:
        if running.controller.is_done or running.controller.state.phase != "running":
            return
        what, _, which = self.acts.pop(at, "").partition(" ")
        nodes, clock, writer = self.nodes.all, running.clock, running.controller.writer
        if what == "kill":
            actor = [actor for actor in running.cluster.actors.values() if actor.is_alive][int(which)]
            died = Failure(origin="process", type="WorkerDied", message="killed by signal 9")
            running.cluster.die(actor, died)
        elif what == "kill-on":
            for actor in [each for each in running.cluster.actors.values() if each.is_alive]:
                if actor.node is nodes[int(which)]:
                    running.cluster.die(
                        actor, Failure(origin="process", type="WorkerDied", message="bad node")
                    )
        elif what == "cancel":
            running.controller.emit(ev.CancelRequested(at=running.controller.now))
        elif what == "lose":
            running.cluster.lose_node(nodes[int(which)])
        elif what == "drain":
            node = nodes[int(which)]
            node.is_draining, node.goes_at = True, clock.now + 6.0
            clock.after(6.0, lambda: running.cluster.lose_node(node))
        elif what == "add":
            nodes.append(Node(name=f"node{len(nodes)}", cpus=int(which)))
            running.cluster.place_groups()
        elif what == "stall":
            writer.put_s = float(which)
            clock.after(12.0, lambda: setattr(writer, "put_s", Costs().put_s))
        elif what == "clock":
            clock.set_wall(float(which))
        elif what == "unloadable":
            left = [None] * int(which)
            running.cluster.set_load_failures(lambda: bool(left and left.pop() is None))


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One sweep to record.

    `cpus`: the CPUs of each node. `memory`: the bytes of each node, and of a trial. `acts`: see `Trouble`.
    `agains`: the requests after each end of the sweep; from the first on, the spec has the fields of
    `changed`, and the trainable the second of `codes`. `chaos`: the seed of a sweep that
    `tests/unit/simulate/chaos.py` draws; of the other fields only `spec` counts then.
    """

    spec: SweepSpec
    score: Score = loss
    length: int = LENGTH
    faults: Mapping[int, str] = field(default_factory=dict)
    hopeless: float = 0.0
    options: Mapping[str, Any] = field(default_factory=dict)
    cpus: tuple[int, ...] = (1, 1, 1, 1)
    memory: tuple[int, int] = (0, 0)
    acts: Mapping[float, str] = field(default_factory=dict)
    agains: tuple[Continue, ...] = ()
    changed: Mapping[str, Any] = field(default_factory=dict)
    codes: tuple[str, str] = ("", "")
    chaos: int | None = None

    @property
    def curve(self) -> Curve:
        """A new trainable."""
        return Trainable(self.score, self.length, faults=self.faults, hopeless=self.hopeless)

    def make_nodes(self) -> Nodes:
        """New nodes."""
        of_node, of_trial = self.memory
        nodes = [
            Node(name=f"node{number}", cpus=cpus, memory_bytes=of_node)
            for number, cpus in enumerate(self.cpus)
        ]
        return Nodes(all=nodes, memory_bytes=of_trial)


def fold(config: Mapping[str, Any], iteration: int) -> Mapping[str, Any]:
    """The error of one fold after the other: configs differ by their mean, folds by their difficulty."""
    hard = noise("fold", iteration)
    return {"loss": round(config["x"] + hard + 1.2 * noise(round(config["x"], 9), iteration), 6)}


def seeded(config: Mapping[str, Any], iteration: int) -> Mapping[str, Any]:
    """A result that varies with the seed of the repeat."""
    return {"loss": round((config["x"] - 0.3) ** 2 + 0.05 * noise(config["s"]) + 0.02 / iteration, 6)}


def mutable(config: Mapping[str, Any], iteration: int) -> Mapping[str, Any]:
    """Falls faster the nearer `lr` is to a value that moves on with the iterations."""
    far = abs(config["lr"] - 0.02 * iteration)
    return {"loss": round(2.0 / iteration + far + 0.8 * noise(round(config["x"], 9), iteration), 6)}


ASHA: Final[dict[str, Any]] = {"max_t": LENGTH, "grace_period": 1, "reduction_factor": 3}
PROMOTION: Final[dict[str, Any]] = ASHA | {"type": "promotion"}
TPE: Final[dict[str, Any]] = {"tpe": {"n_startup_trials": 5}}
JITTER: Final = Costs(jitter=0.5)
SAVING: Final[dict[str, Any]] = {"save_every": 1, "costs": JITTER}
MUTATED: Final[dict[str, Any]] = {"x": {"uniform": [0, 1]}, "lr": {"loguniform": [1e-3, 1]}}
_PBT: Final[dict[str, Any]] = {
    "perturbation_interval": 2,
    "max_t": LENGTH,
    "hyperparam_mutations": ["lr"],
}
_SIZE: Final = "1 + x * 9973 // 1 % 2"

SCENARIOS: Final[dict[str, Scenario]] = {
    "pbt": Scenario(
        spec=make_spec(num_samples=12, param_space=MUTATED, scheduler={"pbt": _PBT}),
        score=mutable,
        faults={25: "dies", 60: "raises"},
        options=SAVING | {"kills": [Kill(when="after", append=40)]},
        cpus=(2,) * 6,
    ),
    "pbt-synch": Scenario(
        spec=make_spec(num_samples=10, param_space=MUTATED, scheduler={"pbt": _PBT | {"synch": True}}),
        score=mutable,
        faults={31: "dies"},
        options=SAVING,
        cpus=(2, 2),
    ),
    "hyperband": Scenario(
        spec=make_spec(num_samples=30, scheduler={"hyperband": {"max_t": LENGTH}}),
        faults={11: "raises", 33: "dies"},
        options=SAVING | {"kills": [Kill(when="before", append=30)]},
    ),
    "asha-promotion": Scenario(
        spec=make_spec(num_samples=40, scheduler={"asha": PROMOTION | {"brackets": 2}}),
        faults={9: "dies", 50: "raises"},
        options=SAVING | {"kills": [Kill(when="after", append=35)]},
    ),
    "asha-delayed": Scenario(
        spec=make_spec(num_samples=40, search=TPE, scheduler={"asha": PROMOTION | {"delayed": True}}),
        faults={30: "dies"},
        hopeless=0.25,
        options=SAVING,
    ),
    "told-pauses": Scenario(
        spec=make_spec(num_samples=30, search=TPE, scheduler={"asha": PROMOTION | {"reduction_factor": 2}}),
        faults={20: "raises"},
        options=SAVING | {"kills": [Kill(when="after", append=30)]},
    ),
    "sizes": Scenario(
        spec=make_spec(
            num_samples=24,
            resources={"cpu": 1, "by_config": {"cpu": _SIZE}},
            scheduler={"asha": ASHA | {"reduction_factor": 2}},
        ),
        faults={14: "dies"},
        options={"save_every": 2, "costs": JITTER},
        cpus=(2, 1, 1),
        acts={9.0: "lose 0", 30.0: "add 2"},
    ),
    "memory": Scenario(
        spec=make_spec(
            num_samples=20,
            resources={"cpu": 1, "memory": GIB, "by_config": {"memory": f"{GIB} * ({_SIZE})"}},
            failure={"backoff_initial_s": 0.5, "oom_memory_factor": 2.0},
        ),
        length=4,
        faults={7: "memory", 25: "memory"},
        options={"save_every": 2, "costs": JITTER},
        cpus=(2, 2),
        memory=(4 * GIB, GIB),
    ),
    "gang": Scenario(
        spec=make_spec(
            num_samples=20,
            scaling={
                "num_workers": 2,
                "resources": {"cpu": 1},
                "by_config": {"num_workers": f"1 + {_SIZE}"},
            },
            scheduler={"asha": ASHA | {"reduction_factor": 2}},
        ),
        faults={14: "dies", 22: "raises"},
        options={"save_every": 2, "costs": JITTER},
        cpus=(4, 2),
    ),
    "repeats-race": Scenario(
        spec=make_spec(num_samples=10, repeat={"times": 6, "seed_param": "s", "race": "wilcoxon"}),
        score=seeded,
        length=2,
        faults={13: "dies"},
        options={"costs": JITTER},
    ),
    "wilcoxon": Scenario(
        spec=make_spec(num_samples=20, search=TPE, stop={"trial_wilcoxon": {"p_threshold": 0.1}}),
        score=fold,
        length=10,
        faults={21: "dies"},
        options={"save_every": 3, "costs": JITTER, "kills": [Kill(when="after", append=20)]},
    ),
    "several-metrics": Scenario(
        spec=make_spec(
            num_samples=24,
            metric=["loss", "size"],
            mode=["min", "min"],
            search=TPE,
            scheduler={"moasha": {"max_t": LENGTH, "grace_period": 2, "reduction_factor": 3}},
        ),
        faults={12: "raises"},
        options={"costs": JITTER},
    ),
    "constraints": Scenario(
        spec=make_spec(num_samples=24, search=TPE, constraints=["size <= 0.6", "loss < 0.9"]),
        length=4,
        faults={12: "raises", 30: "dies", 113: "raises"},
        options={"save_every": 2, "costs": JITTER},
    ),
    "open-end": Scenario(
        spec=make_spec(num_samples=None, search=TPE, stop={"time_budget_s": 70}),
        length=6,
        faults={12: "raises"},
        options={"save_every": 2, "costs": JITTER, "kills": [Kill(when="after", append=25)]},
    ),
    "extend": Scenario(
        spec=make_spec(
            num_samples=16,
            scheduler={"asha": {"max_t": 4, "reduction_factor": 2}},
            failure={"backoff_initial_s": 0.5, "max_failures": 0, "max_worker_deaths": 3},
        ),
        length=20,
        faults={15: "dies", 32: "raises"},
        options=SAVING,
        agains=(
            Continue(extend=Extension(max_t=7, top=2)),
            Continue(extend=Extension(max_t=9, trials=(3,))),
        ),
    ),
    "retry": Scenario(
        spec=make_spec(num_samples=16, failure={"backoff_initial_s": 0.5, "max_failures": 1}),
        length=5,
        faults=dict.fromkeys((*range(20, 25), *range(26, 32), 60), "raises"),
        hopeless=0.3,
        options={"save_every": 2, "costs": JITTER},
        agains=(Continue(retry="failed"), Continue(retry=(3,))),
    ),
    "trouble": Scenario(
        spec=make_spec(
            num_samples=30,
            scheduler={"asha": ASHA | {"reduction_factor": 2}},
            checkpoint={"keep_last": 2},
            failure={"backoff_initial_s": 0.5, "max_failures": 2, "bad_node_failures": 2},
        ),
        faults={9: "dies", 10: "raises", 60: "dies"},
        options=SAVING | {"wait_every": 2, "kills": [Kill(when="before", append=50)]},
        cpus=(2, 1, 1),
        acts={
            4.0: "kill 1",
            6.0: "drain 1",
            9.0: "add 1",
            12.0: "clock 7200",
            15.0: "stall 9",
            34.0: "lose 2",
            36.0: "unloadable 1",
            36.5: "kill 0",
        },
    ),
    "resizing": Scenario(
        spec=make_spec(
            num_samples=12,
            param_space={"x": {"uniform": [0, 1]}, "threads": 1},
            resources={"cpu": 1, "by_config": {"cpu": "threads"}},
            scheduler={
                "resource_changing": {
                    "param": "threads",
                    "total": 4,
                    "interval": 2,
                    "base": {"asha": {"max_t": LENGTH, "reduction_factor": 2}},
                }
            },
        ),
        faults={14: "dies"},
        options=SAVING,
        cpus=(4,),
    ),
    "bohb": Scenario(
        spec=make_spec(num_samples=30, search="bohb", scheduler={"hyperband": {"max_t": LENGTH}}),
        faults={40: "dies"},
        options=SAVING | {"kills": [Kill(when="after", append=30)]},
    ),
    "cancelled": Scenario(
        spec=make_spec(
            num_samples=24,
            search=TPE,
            scheduler={"asha": PROMOTION},
            failure={"backoff_initial_s": 20, "backoff_max_s": 20, "max_failures": 2},
        ),
        faults={20: "raises", 24: "dies"},
        options=SAVING,
        acts={14.0: "cancel"},
        agains=(Continue(resume_cancelled=True),),
    ),
    "silent": Scenario(
        spec=make_spec(
            num_samples=24,
            failure={
                "backoff_initial_s": 0.5,
                "max_failures": 0,
                "max_worker_deaths": 3,
                "report_timeout_s": 8,
                "bad_node_failures": 2,
            },
            stop={"grace_s": 2},
        ),
        length=5,
        faults={40: "hangs", 60: "hangs", 70: "raises"},
        options={"save_every": 2, "costs": JITTER},
        acts={3.0: "kill-on 2", 13.0: "kill-on 2"},
    ),
    "median": Scenario(
        spec=make_spec(num_samples=20, scheduler={"median_stopping": {"grace_period": 2}}),
        faults={106: "raises", 107: "raises", 108: "raises"},
        options={"save_every": 3, "costs": JITTER},
    ),
    "pasha": Scenario(
        spec=make_spec(num_samples=24, scheduler={"pasha": {"max_t": LENGTH, "reduction_factor": 2}}),
        faults={9: "dies"},
        options=SAVING,
    ),
    "patience": Scenario(
        spec=make_spec(
            num_samples=20,
            stop={
                "trial_patience": {"reports": 2},
                "trial_plateau": {"std": 0.02, "num_results": 3},
                "plateau": {"window": 6, "min_trials": 8},
            },
        ),
        options={"save_every": 2, "costs": JITTER},
    ),
    "target": Scenario(
        spec=make_spec(
            num_samples=24,
            search=TPE,
            scheduler={"asha": ASHA | {"reduction_factor": 2}},
            stop={"target": 0.05},
        ),
        faults={9: "dies"},
        options=SAVING | {"kills": [Kill(when="after", append=12)]},
    ),
    "retention": Scenario(
        spec=make_spec(
            num_samples=12,
            scheduler={"asha": {"max_t": 4, "reduction_factor": 2}},
            checkpoint={"keep_top_k": 2, "keep_best": {"metric": "size", "mode": "max"}, "every_n": 3},
            failure={"backoff_initial_s": 0.5, "max_failures": 0, "max_worker_deaths": 3},
        ),
        length=20,
        faults={6: "raises", 20: "dies"},
        options=SAVING,
        agains=(Continue(retry="failed"), Continue(extend=Extension(max_t=7, top=2))),
        changed={"num_samples": 15},
        codes=("py:1", "py:2"),
    ),
}
CHAOS: Final = (29, 48, 92, 98, 115, 136, 158, 199, 328, 521)
"""Drawn sweeps, chosen out of 600 for lines and rules of the core that no other journal shows."""
SCENARIOS.update({f"chaos-{seed}": Scenario(spec=Drawn.of(seed).spec, chaos=seed) for seed in CHAOS})
