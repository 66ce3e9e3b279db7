"""Sweeps to be disturbed, and what must hold of them however they were disturbed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raysweep.core import SweepState, step
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.lifecycle import FINAL
from raysweep.simulate import Costs, Kill, Simulated, WorkerDied, simulate
from raysweep.specs import SweepSpec

ASHA = {"asha": {"max_t": 9, "grace_period": 1, "reduction_factor": 3}}
LENGTH = 9


def make_spec(**fields: Any) -> SweepSpec:
    """A small spec; `fields` replace its own."""
    plain = {
        "name": "toy",
        "trainable": "toys.module:train",
        "param_space": {"x": {"uniform": [0, 1]}},
        "metric": "loss",
        "mode": "min",
        "num_samples": 8,
        "search": "random",
        "seed": 1,
        "failure": {"backoff_initial_s": 0.5},
    }
    return SweepSpec.model_validate(plain | fields)


class Trainable:
    """A curve that depends on its config alone, and fails where it is told to.

    Trials are known by their `x`, in the order in which they are met first. `raises`, `dies`: (trial, step)
    where that happens once. `hopeless`: trials that raise a TypeError before their first report, each time.
    """

    def __init__(
        self,
        raises: Sequence[tuple[int, int]] = (),
        dies: Sequence[tuple[int, int]] = (),
        hopeless: Sequence[int] = (),
    ) -> None:
        self.left = [*((*where, "raises") for where in raises), *((*where, "dies") for where in dies)]
        self._hopeless = hopeless
        self._numbers: dict[float, int] = {}

    def __call__(self, config: Mapping[str, Any], iteration: int) -> Mapping[str, Any] | None:
        x = config["x"]
        trial = self._numbers.setdefault(x, len(self._numbers))
        if trial in self._hopeless:
            raise TypeError("as asked")
        for how in ("raises", "dies"):
            if (trial, iteration, how) in self.left:
                self.left.remove((trial, iteration, how))
                raise ValueError("as asked") if how == "raises" else WorkerDied("killed by signal 9")
        if iteration > LENGTH:
            return None
        return {"loss": round((x - 0.3) ** 2 + x / iteration, 6), "step": iteration}


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A sweep that can be run any number of times, with other kills."""

    spec: SweepSpec
    faults: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_exact(self) -> bool:
        """Whether the outcome may not depend on the kills at all."""
        return self.spec.max_concurrent_trials == 1

    def run(self, *kills: Kill) -> Simulated:
        trainable = Trainable(**self.faults)
        simulated = simulate(self.spec, trainable, kills=kills, is_checked=True, **self.options)
        assert trainable.left == [], "a fault of the trainable did not fire"
        return simulated


SCENARIOS = {
    "random-fifo": Scenario(
        spec=make_spec(max_concurrent_trials=1),
        faults={"raises": [(1, 4)], "dies": [(2, 6), (2, 8)], "hopeless": [5]},
        options={"save_every": 2, "wait_every": 3},
    ),
    "tpe-asha": Scenario(
        spec=make_spec(
            max_concurrent_trials=1,
            scheduler=ASHA,
            search={"tpe": {"n_startup_trials": 3}},
            checkpoint={"keep_last": 2},
        ),
        faults={"hopeless": [4]},
        options={"save_every": 2},
    ),
    "random-asha-at-once": Scenario(
        spec=make_spec(num_samples=12, scheduler=ASHA),
        faults={"raises": [(0, 1), (5, 1)], "dies": [(1, 1), (2, 1)], "hopeless": [7]},
        options={"slots": 4, "save_every": 1, "wait_every": 2, "costs": Costs(jitter=0.5)},
    ),
    "tpe-fifo-at-once": Scenario(
        spec=make_spec(search={"tpe": {"n_startup_trials": 3}}),
        faults={"raises": [(3, 9)], "dies": [(4, 2)]},
        options={"slots": 3, "save_every": 3, "costs": Costs(jitter=0.5)},
    ),
    "halving": Scenario(
        spec=make_spec(
            max_concurrent_trials=1, scheduler={"tests.policies:Halving": {}}, checkpoint={"keep_last": 2}
        ),
        faults={"dies": [(2, 1)], "hopeless": [4]},
        options={"save_every": 2, "wait_every": 1},
    ),
    "halving-at-once": Scenario(
        spec=make_spec(num_samples=12, scheduler={"tests.policies:Halving": {"tweak": 0.01}}),
        faults={"raises": [(0, 1)], "dies": [(1, 1)], "hopeless": [7]},
        options={"slots": 4, "save_every": 1, "costs": Costs(jitter=0.5)},
    ),
    "copycat-at-once": Scenario(
        spec=make_spec(num_samples=12, scheduler={"tests.policies:Copycat": {}}),
        faults={"raises": [(0, 1)], "dies": [(1, 1)], "hopeless": [7]},
        options={"slots": 4, "save_every": 1, "wait_every": 2, "costs": Costs(jitter=0.5)},
    ),
    "asha-that-keeps-two": Scenario(
        spec=make_spec(
            num_samples=12,
            scheduler=ASHA,
            checkpoint={"keep_best": {"metric": "step", "mode": "min"}, "every_n": 3, "keep_top_k": 2},
        ),
        faults={"raises": [(0, 1), (5, 1)], "dies": [(1, 1), (2, 1)], "hopeless": [7]},
        options={"slots": 4, "save_every": 1, "costs": Costs(jitter=0.5)},
    ),
    "short-trials-ahead": Scenario(
        spec=make_spec(num_samples=40),
        faults={"dies": [(20, 1)]},
        options={"slots": 3, "step_s": 0.001, "costs": Costs(commit_interval_s=0.02)},
    ),
}
# Enough segments for merged ones, and a snapshot at each takeover: everything that a controller ever writes.
COMPACTED = Scenario(
    spec=make_spec(num_samples=10, max_concurrent_trials=1),
    faults={"raises": [(1, 4)], "dies": [(2, 6)]},
    options={
        "save_every": 1,
        "wait_every": 1,
        "has_snapshots": True,
        "costs": Costs(commit_interval_s=0.01, put_s=0.002),
    },
)


def shown(simulated: Simulated) -> dict[str, Any]:
    """What a kill must not change in a sequential sweep."""
    outcome = simulated.outcome
    return {
        "status": outcome.status,
        "counts": outcome.counts,
        "best": outcome.found_best and outcome.found_best.number,
        "pareto": [trial.number for trial in outcome.pareto],
        "trials": [
            (trial.config, trial.state, trial.metrics, trial.best_metrics, trial.score, trial.error)
            for trial in outcome.trials
        ],
    }


def check_promises(
    scenario: Scenario, simulated: Simulated, undisturbed: Simulated, kills: Sequence[Kill]
) -> None:
    """Nothing finished is lost, nothing runs twice."""
    assert sorted(map(repr, simulated.fired)) == sorted(map(repr, kills)), "not every kill happened"
    assert len(simulated.outcome) == len(undisturbed.outcome)
    assert all(trial.state in FINAL for trial in simulated.outcome.trials)
    assert simulated.outcome.status == undisturbed.outcome.status
    check_history(scenario.spec, simulated)


def check_history(spec: SweepSpec, simulated: Simulated) -> None:
    """What must hold of every history, whatever happened in it."""
    _check_nothing_finished_ran_again(spec, simulated)
    _check_acknowledged_reports(simulated)
    _check_attempts(simulated)


def _check_nothing_finished_ran_again(spec: SweepSpec, simulated: Simulated) -> None:
    finished: dict[int, set[int]] = {}
    state = SweepState.create(spec, 1)
    for event in simulated.journal:
        if isinstance(event, ev.ControllerStarted):
            finished[event.generation] = {n for n, trial in state.trials.items() if trial.state in FINAL}
        step(state, event)
    assert state.phase == "ended", "the stored journal does not lead to the end"
    for moment in simulated.timeline:
        if moment.what == "began":
            assert moment.trial not in finished[moment.generation], f"{moment}: it had ended before"


def _check_acknowledged_reports(simulated: Simulated) -> None:
    stored: dict[tuple[int, int, int], int] = defaultdict(int)
    generation = 0
    for event in simulated.journal:
        if isinstance(event, ev.ControllerStarted):
            generation = event.generation
        elif isinstance(event, ev.TrialReported):
            stored[generation, event.trial, event.attempt] += len(event.rows)
    for moment in simulated.timeline:
        if moment.what == "answered":
            assert moment.trial is not None
            assert moment.attempt is not None
            assert moment.iteration is not None
            rows = stored[moment.generation, moment.trial, moment.attempt]
            assert rows > moment.iteration, f"{moment}: only {rows} reports of that attempt are stored"


def _check_attempts(simulated: Simulated) -> None:
    started = Counter(
        (event.trial, event.attempt) for event in simulated.journal if isinstance(event, ev.TrialStarted)
    )
    assert set(started.values()) <= {1}, f"attempt numbers used twice: {started.most_common(3)}"
    running: dict[int, tuple[int, int | None]] = {}
    for moment in simulated.timeline:
        if moment.what in ("claimed", "killed", "left"):
            running.clear()
        if moment.trial is None:
            continue
        if moment.what == "began":
            assert moment.trial not in running, f"{moment}: it runs already"
            running[moment.trial] = (moment.generation, moment.slot)
        elif moment.what in ("returned", "stopped", "failed", "died"):
            del running[moment.trial]
