"""What there is, is shared out among the trials that have not ended."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.schedulers import NOTHING, Resize, Scheduler, Stop, make_scheduler
from raysweep.schedulers.asha import AshaScheduler
from raysweep.schedulers.pbt import PbtScheduler, Population
from raysweep.schedulers.resource_changing import ResourceChangingScheduler
from raysweep.simulate import simulate
from raysweep.simulate.nodes import Node, Nodes
from raysweep.specs import SweepSpec

SHARE = {"param": "threads", "total": 8, "interval": 2}


def spec(scheduler: dict[str, Any] | None = None, **fields: Any) -> SweepSpec:
    plain: dict[str, Any] = {
        "name": "a",
        "trainable": "m:f",
        "metric": "loss",
        "mode": "min",
        "search": "random",
        "num_samples": 4,
        "param_space": {"x": {"uniform": [0, 1]}, "threads": 1},
        "resources": {"cpu": 1, "by_config": {"cpu": "threads"}},
        "scheduler": {"resource_changing": SHARE if scheduler is None else scheduler},
    }
    return SweepSpec(**plain | fields)


def begun(trials: int, **options: Any) -> ResourceChangingScheduler:
    base = Scheduler()
    found = ResourceChangingScheduler(base=base, param=("threads",), **{"total": 8, "interval": 2} | options)
    for trial in range(trials):
        found.add(trial, {"threads": 1})
    return found


def test_each_gets_an_even_whole_share_at_its_next_interval() -> None:
    scheduler = begun(3)
    assert scheduler.report(0, 1, 0.5) == NOTHING
    assert scheduler.report(0, 2, 0.5) == ((0, Resize({"threads": 2})),)
    assert scheduler.report(0, 3, 0.5) == NOTHING, "it has changed a moment ago"
    scheduler.end(1, 9, 0.5)
    assert scheduler.report(0, 4, 0.5) == ((0, Resize({"threads": 4})),)
    scheduler.remove(2)
    assert scheduler.report(0, 6, 0.5) == ((0, Resize({"threads": 8})),)
    assert scheduler.report(0, 8, 0.5) == NOTHING, "it has all there is"


def test_no_share_is_below_the_first_or_above_the_most() -> None:
    crowded = begun(20)
    assert crowded.report(0, 2, 0.5) == NOTHING
    bounded = begun(1, most=3)
    assert bounded.report(0, 2, 0.5) == ((0, Resize({"threads": 3})),)


def test_trials_that_come_later_take_their_share_back() -> None:
    scheduler = begun(1)
    assert scheduler.report(0, 2, 0.5) == ((0, Resize({"threads": 8})),)
    scheduler.add(1, {"threads": 1})
    assert scheduler.report(0, 4, 0.5) == ((0, Resize({"threads": 4})),)


def test_who_stops_is_the_bases_to_say() -> None:
    base = AshaScheduler(mode="min", max_t=8, grace_period=2, reduction_factor=2)
    scheduler = ResourceChangingScheduler(base=base, param=("threads",), total=8, interval=2)
    assert (scheduler.max_t, scheduler.time_attr) == (8, "training_iteration")
    assert scheduler.moves == {"stop", "exploit"}
    for trial in (0, 1):
        scheduler.add(trial, {"threads": 1})
    assert scheduler.report(0, 2, 0.1) == ((0, Resize({"threads": 4})),)
    assert scheduler.report(1, 2, 0.9) == ((1, Stop()),)


def test_a_config_without_the_parameter_is_left_alone() -> None:
    scheduler = begun(0)
    scheduler.add(0, {"flat": {}})
    assert scheduler.report(0, 2, 0.5) == NOTHING


BY_THREADS: dict[str, dict[str, Any]] = {
    "process": {"resources": {"cpu": 1, "by_config": {"cpu": "threads"}}},
    "gang": {"resources": {"cpu": 1}, "scaling": {"by_config": {"resources": {"cpu": "threads"}}}},
}


@pytest.mark.parametrize("kind", BY_THREADS)
def test_in_a_sweep_the_longer_trials_go_on_with_more(kind: str) -> None:
    """Four trials of 2, 4, 6 and 20 reports on eight CPUs: nobody loses a report."""

    def curve(config: dict[str, Any], epoch: int) -> dict[str, float] | None:
        lengths = {0: 2, 1: 4, 2: 6, 3: 20}
        return {"loss": config["x"]} if epoch <= lengths[int(config["n"])] else None

    space = {"x": {"uniform": [0, 1]}, "threads": 1, "n": {"grid_search": [0, 1, 2, 3]}}
    asked = spec(param_space=space, num_samples=1, search="grid", **BY_THREADS[kind])
    simulated = simulate(asked, curve, nodes=Nodes(all=[Node(name="one", cpus=8)]), save_every=1)
    outcome = simulated.outcome
    assert outcome.counts == {"completed": 4}
    assert [trial.metrics["training_iteration"] for trial in outcome.trials] == [2, 4, 6, 20]
    assert outcome.trials[3].config["threads"] == 8
    assert [attempt.end for attempt in outcome.trials[3].attempts].count("exploited") >= 2
    (need,) = asked.needs
    assert (need.name, need.of(outcome.trials[3].config)) == ("cpu", 8)


def test_a_share_that_no_node_holds_is_given_back_at_once() -> None:
    """Eight CPUs on two nodes: the last trial cannot have them all, and continues with its four."""

    def curve(config: dict[str, Any], epoch: int) -> dict[str, float] | None:
        return {"loss": config["x"]} if epoch <= (20 if config["n"] == 1 else 4) else None

    space = {"x": {"uniform": [0, 1]}, "threads": 4, "n": {"grid_search": [0, 1]}}
    nodes = Nodes(all=[Node(name="one", cpus=4), Node(name="two", cpus=4)])
    asked = spec(
        param_space=space, num_samples=1, search="grid", resources=BY_THREADS["process"]["resources"]
    )
    simulated = simulate(asked, curve, nodes=nodes, save_every=1, is_checked=True)
    outcome = simulated.outcome
    assert outcome.counts == {"completed": 2}
    last = outcome.trials[1]
    assert (last.config["threads"], last.metrics["training_iteration"]) == (4, 20)
    assert last.schedule == (), "it has had one config alone"
    assert [attempt.end for attempt in last.attempts] == ["exploited", "completed"]
    assert simulated.duration_s < 60, "it does not wait for such a node"
    told = "trial 1 keeps its resources: its scheduler set cpu=8, for which no node has room"
    assert outcome.notes == (told,)


def test_it_is_made_from_the_spec_and_its_state_is_its_own() -> None:
    scheduler = make_scheduler(spec(SHARE | {"base": {"median_stopping": {"grace_period": 3}}}))
    assert isinstance(scheduler, ResourceChangingScheduler)
    with pytest.raises(SpecError):
        begun(1, total=4).from_json(begun(1).to_json())
    with pytest.raises(ValueError, match="may stop trials"):
        ResourceChangingScheduler(
            base=PbtScheduler(mode="min", population=Population(perturbation_interval=2)),
            param=("a",),
            total=2,
        )


@pytest.mark.parametrize(
    ("scheduler", "fields", "said"),
    [
        (None, {"resources": {"cpu": 1}}, r"param: requires by_config, which makes the resources"),
        (
            None,
            {"resources": {"cpu": 1}, "scaling": {}},
            r"write scaling: {by_config: {resources: {cpu",
        ),
        (
            SHARE | {"param": "thread"},
            {},
            r"param: by_config is not made of 'thread'; did you mean 'threads'",
        ),
        (SHARE | {"base": "pbt"}, {}, r"base: 'pbt' is not known here"),
        (SHARE | {"base": "m:C"}, {}, r"base: a class cannot be the base"),
        (SHARE | {"base": {"asha": {"type": "promotion"}}}, {}, r"base\.asha\.type: pauses trials"),
        (SHARE | {"base": {"median_stopping": {"hard_stop": False}}}, {}, r"hard_stop: pauses trials"),
        (SHARE | {"total": 0}, {}, r"total"),
        (None, {"metric": ["a", "b"], "mode": ["min", "min"]}, r"^scheduler"),
    ],
)
def test_what_cannot_be_is_refused(scheduler: Any, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        spec(scheduler, **fields)
