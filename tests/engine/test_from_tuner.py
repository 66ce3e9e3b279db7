"""A `ray.tune.Tuner` becomes a spec, or an error that names each part that cannot. Starts no Ray."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray import tune
from ray.tune.schedulers import (
    ASHAScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    PopulationBasedTrainingReplay,
    ResourceChangingScheduler,
)
from ray.tune.schedulers.hb_bohb import HyperBandForBOHB
from ray.tune.schedulers.pb2 import PB2
from ray.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Repeater, Searcher
from ray.tune.search.bohb import TuneBOHB
from ray.tune.stopper import (
    CombinedStopper,
    ExperimentPlateauStopper,
    MaximumIterationStopper,
    NoopStopper,
    TimeoutStopper,
    TrialPlateauStopper,
)

import raysweep as rs
from raysweep.search.spec import SearchSpec
from tests.engine.tuners import TUNES_RULES, Make, maker_of_tuners, train
from tests.unit.worker.tune_trainables import Counter


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """A tuner: keywords of `TuneConfig` and `RunConfig` mixed."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return maker_of_tuners(tmp_path / "ray")


def test_a_plain_tuner_says_what_a_plain_spec_does(make: Make, tmp_path: Path) -> None:
    assert rs.from_tuner(make(num_samples=7)) == rs.SweepSpec(
        name="named",
        trainable=train,
        param_space={"x": {"uniform": [0, 1]}},
        metric="loss",
        mode="min",
        num_samples=7,
        failure=TUNES_RULES,
        isolation="process",
        storage_path=str(tmp_path / "ray"),
    )


def test_each_trial_has_a_process_of_its_own_as_in_tune(make: Make) -> None:
    assert rs.from_tuner(make()).isolation == "process"
    assert rs.from_tuner(make(reuse_actors=True)).isolation == "worker"
    assert rs.from_tuner(make(), isolation="worker").isolation == "worker"
    assert rs.from_tuner(make(), isolation=None).isolation is None
    bundles = tune.PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}])
    assert rs.from_tuner(make(tune.with_resources(train, bundles))).isolation == "actor"


def test_a_limiter_that_tells_in_batches_is_refused(make: Make) -> None:
    batches = ConcurrencyLimiter(optuna(seed=3), max_concurrent=2, batch=True)
    with pytest.raises(rs.SpecError, match=r"search_alg\.batch: True holds results back .*leave batch out"):
        rs.from_tuner(make(search_alg=batches))
    part = "tune_config.search_alg.batch"
    assert rs.from_tuner(make(search_alg=batches), ignore=[part]).max_concurrent_trials == 2
    one = ConcurrencyLimiter(optuna(seed=3), max_concurrent=1, batch=True)
    assert rs.from_tuner(make(search_alg=one)).max_concurrent_trials == 1


def test_a_tuple_in_a_tuner_is_a_tuple(make: Make) -> None:
    spec = rs.from_tuner(make(space={"shape": tune.choice([(1, 1), (1, 2)])}))
    assert spec.param_space == {"shape": {"choice": [(1, 1), (1, 2)]}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"scheduler": FIFOScheduler()}, {}),
        (
            {"scheduler": ASHAScheduler(max_t=81, grace_period=3, reduction_factor=3, brackets=2)},
            {"scheduler": {"asha": {"max_t": 81, "grace_period": 3, "reduction_factor": 3, "brackets": 2}}},
        ),
        ({"scheduler": ASHAScheduler(time_attr="epoch")}, {"scheduler": {"asha": {"time_attr": "epoch"}}}),
        ({"scheduler": HyperBandScheduler(max_t=9)}, {"scheduler": {"hyperband": {"max_t": 9}}}),
        ({"max_concurrent_trials": 3}, {"max_concurrent_trials": 3}),
        ({"max_concurrent_trials": 0}, {}),
        ({"search_alg": BasicVariantGenerator(points_to_evaluate=[{"x": 0.5}])}, {"points": [{"x": 0.5}]}),
        ({"time_budget_s": timedelta(hours=1)}, {"stop": {"time_budget_s": 3600}}),
        (
            {"stop": {"training_iteration": 5, "loss": 2}},
            {"stop": {"trial": {"training_iteration": 5, "loss": 2}}},
        ),
        ({"stop": {"done": True}}, {}),
        ({"stop": {"time_total_s": 60}}, {"stop": {"trial_time_s": 60}}),
        ({"stop": MaximumIterationStopper(4)}, {"stop": {"trial": {"training_iteration": 4}}}),
        (
            {"stop": CombinedStopper(MaximumIterationStopper(4), TimeoutStopper(60))},
            {"stop": {"trial": {"training_iteration": 4}, "time_budget_s": 60}},
        ),
        (
            {
                "stop": CombinedStopper(
                    MaximumIterationStopper(9), MaximumIterationStopper(4), NoopStopper()
                ),
                "time_budget_s": 60,
            },
            {"stop": {"trial": {"training_iteration": 4}, "time_budget_s": 60}},
        ),
        (
            {"stop": CombinedStopper(TimeoutStopper(60)), "time_budget_s": timedelta(seconds=50)},
            {"stop": {"time_budget_s": 50}},
        ),
        (
            {"stop": TrialPlateauStopper("acc", std=0.5, num_results=3, grace_period=2)},
            {"stop": {"trial_plateau": {"metric": "acc", "std": 0.5, "num_results": 3, "grace_period": 2}}},
        ),
        ({"stop": TrialPlateauStopper("acc")}, {"stop": {"trial_plateau": {"metric": "acc"}}}),
        (
            {"stop": TrialPlateauStopper("acc", metric_threshold=0.9, mode="max")},
            {"stop": {"trial_plateau": {"metric": "acc", "metric_threshold": 0.9, "mode": "max"}}},
        ),
        (
            {"failure_config": tune.FailureConfig(max_failures=4)},
            {"failure": TUNES_RULES | {"max_failures": 4}},
        ),
        (
            {"failure_config": tune.FailureConfig(fail_fast=True)},
            {"failure": TUNES_RULES | {"max_failed_fraction": 0.0}},
        ),
        ({"checkpoint_config": tune.CheckpointConfig(num_to_keep=3)}, {"checkpoint": {"keep_last": 3}}),
        (
            {"checkpoint_config": tune.CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="acc")},
            {"checkpoint": {"keep_best": {"metric": "acc", "mode": "max", "num": 2}}},
        ),
        (
            {
                "checkpoint_config": tune.CheckpointConfig(checkpoint_frequency=5, checkpoint_at_end=True),
                "reuse_actors": True,
            },
            {
                "tune": {"checkpoint_frequency": 5, "checkpoint_at_end": True, "reuse_actors": True},
                "isolation": "worker",
            },
        ),
    ],
    ids=lambda value: None,
)
def test_what_a_tuner_says_is_said_in_the_spec(
    make: Make, given: dict[str, Any], said: dict[str, Any]
) -> None:
    plain = rs.from_tuner(make())
    assert rs.from_tuner(make(**given)) == plain.replace(**said)


def test_a_limited_search_limits_the_trials_at_once(make: Make) -> None:
    optuna = pytest.importorskip("ray.tune.search.optuna")
    search = ConcurrencyLimiter(optuna.OptunaSearch(seed=3), max_concurrent=2)
    spec = rs.from_tuner(make(search_alg=search))
    assert (spec.search.kind, spec.seed, spec.max_concurrent_trials) == ("tpe", 3, 2)


def optuna(**options: Any) -> Searcher:
    searches = pytest.importorskip("ray.tune.search.optuna")
    search: Searcher = searches.OptunaSearch(**options)
    return search


def test_a_repeater_repeats_each_config(make: Make) -> None:
    """Tune's num_samples counts trials, ours configs; so does a limit inside the Repeater."""
    spec = rs.from_tuner(make(search_alg=Repeater(optuna(seed=3), repeat=5), num_samples=20))
    assert (spec.search.kind, spec.seed, spec.num_samples) == ("tpe", 3, 4)
    assert spec.repeat == rs.from_tuner(make(), repeat=5).repeat
    inside = Repeater(ConcurrencyLimiter(optuna(), max_concurrent=2), repeat=5)
    assert rs.from_tuner(make(search_alg=inside, num_samples=20)).max_concurrent_trials == 10
    around = ConcurrencyLimiter(Repeater(optuna(), repeat=5), max_concurrent=2)
    spec = rs.from_tuner(make(search_alg=around, num_samples=20))
    assert spec.repeat is not None
    assert (spec.num_samples, spec.repeat.times, spec.max_concurrent_trials) == (4, 5, 2)
    assert rs.from_tuner(make(search_alg=Repeater(optuna()), num_samples=20)).repeat is None


def test_trials_that_a_repeater_would_leave_over_are_said(make: Make) -> None:
    tuner = make(search_alg=Repeater(optuna(), repeat=5), num_samples=12)
    with pytest.raises(rs.SpecError, match=r"tune_config\.num_samples: 12 .* repeat=5") as caught:
        rs.from_tuner(tuner)
    assert "num_samples=2)" in caught.value.fix
    assert rs.from_tuner(tuner, num_samples=3).num_samples == 3
    assert rs.from_tuner(tuner, ignore=["tune_config.num_samples"]).num_samples == 2


def test_several_metrics_of_a_search_are_the_sweeps(make: Make) -> None:
    search = ConcurrencyLimiter(optuna(metric=["loss", "gain"], mode=["min", "max"]), max_concurrent=2)
    spec = rs.from_tuner(make(search_alg=search, metric=None, mode=None))
    assert (spec.metric, spec.mode, spec.others, spec.search.kind) == ("loss", "min", {"gain": "max"}, "tpe")


def test_a_population_begins_with_what_the_space_fixes(make: Make) -> None:
    """Tune explores a constant, and draws what is not in the space."""
    explored = {"lr": tune.uniform(0, 1), "f": [1, 2], "new": tune.randint(0, 9), "net": {"w": [8, 16]}}
    scheduler = PopulationBasedTraining("training_iteration", hyperparam_mutations=explored)
    space = {"lr": 0.1, "f": tune.choice([1, 2]), "net": {"w": 8, "d": 2}, "k": 7}
    spec = rs.from_tuner(make(space=space, scheduler=scheduler, num_samples=2))
    assert spec.param_space == {
        "lr": {"uniform": [0, 1]},
        "f": {"choice": [1, 2]},
        "net": {"w": {"choice": [8, 16]}, "d": 2},
        "k": 7,
        "new": {"randint": [0, 9]},
    }
    assert spec.points == ({"lr": 0.1, "net": {"w": 8}},) * 2
    assert spec.scheduler.kind == "pbt"
    points = BasicVariantGenerator(points_to_evaluate=[{"lr": 0.5}])
    spec = rs.from_tuner(make(space=space, scheduler=scheduler, search_alg=points, num_samples=2))
    assert [point["lr"] for point in spec.points] == [0.5, 0.1]


def test_a_bandit_population_keeps_the_kind_of_a_constant(make: Make) -> None:
    scheduler = PB2("training_iteration", hyperparam_bounds={"lr": [0.0, 1.0], "w": [1, 5], "new": [0, 2]})
    spec = rs.from_tuner(make(space={"lr": 0.1, "w": 2}, scheduler=scheduler, num_samples=2))
    assert spec.param_space == {
        "lr": {"uniform": [0.0, 1.0]}, "w": {"randint": [1, 6]}, "new": {"uniform": [0, 2]},
    }  # fmt: skip
    assert spec.points == ({"lr": 0.1, "w": 2},) * 2


@pytest.mark.parametrize(
    ("space", "fields"),
    [
        ({"lr": 0.1, "x": tune.grid_search([1, 2])}, {}),
        ({"lr": 0.1}, {"num_samples": -1, "time_budget_s": 9}),
    ],
)
def test_constants_of_a_population_without_a_number_of_trials_are_refused(
    make: Make, space: dict[str, Any], fields: dict[str, Any]
) -> None:
    scheduler = PopulationBasedTraining("training_iteration", hyperparam_mutations={"lr": tune.uniform(0, 1)})
    with pytest.raises(rs.SpecError, match=r"hyperparam_mutations\.lr: .* param_space has 0\.1"):
        rs.from_tuner(make(space=space, scheduler=scheduler, **fields))
    assert rs.from_tuner(make(space=space, scheduler=scheduler), scheduler="fifo").points == ()


def test_bohb_is_bohb(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made as Ray makes it before `fit`, which is where it calls HpBandSter first."""
    # Its constructor looks whether that is installed, which has not been maintained since 2019.
    monkeypatch.setattr("ray.tune.search.bohb.bohb_search.BOHB", object())
    pair: dict[str, Any] = {"scheduler": HyperBandForBOHB(max_t=9), "num_samples": 20}
    plain = rs.from_tuner(make(**pair), search="bohb")
    assert rs.from_tuner(make(**pair, search_alg=TuneBOHB())) == plain
    config = {"num_samples": 32, "min_points_in_model": 5, "random_fraction": 0.1}
    point = {"x": 0.5}
    search = TuneBOHB(bohb_config=config, seed=3, points_to_evaluate=[point], max_concurrent=2)
    spec = rs.from_tuner(make(**pair, search_alg=search))
    said = {"search": {"bohb": config}, "seed": 3, "points": [point], "max_concurrent_trials": 2}
    assert spec == plain.replace(**said)
    limited = ConcurrencyLimiter(TuneBOHB(max_concurrent=-1), max_concurrent=4)
    assert rs.from_tuner(make(**pair, search_alg=limited)).max_concurrent_trials == 4
    unlimited = rs.from_tuner(make(**pair, search_alg=TuneBOHB(max_concurrent=-1)))
    assert unlimited.max_concurrent_trials is None
    with pytest.raises(rs.SpecError, match=r"^search: TuneBOHB is bohb here; write search: \"bohb\""):
        spec.replace(search=TuneBOHB())
    given = TuneBOHB()
    given._space = {"x": "of ConfigSpace"}
    with pytest.raises(rs.SpecError, match=r"^tune_config\.search_alg\.space: .*; write the space as param"):
        rs.from_tuner(make(**pair, search_alg=given))


def test_a_replay_becomes_the_schedule_of_a_training(make: Make, tmp_path: Path) -> None:
    policy = tmp_path / "pbt_policy.txt"
    rows = [["1", "2", 10, 12, {"lr": 0.1}, {"lr": 0.2}], ["0", "1", 19, 20, {"lr": 0.2}, {"lr": 0.05}]]
    policy.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(
        rs.SpecError, match=r"^tune_config\.scheduler: PopulationBasedTrainingReplay"
    ) as caught:
        rs.from_tuner(make(scheduler=PopulationBasedTrainingReplay(str(policy))))
    said, _, schedule = caught.value.fix.partition("; its schedule: ")
    assert said.startswith("run a TrainSpec, and in the trainable ask rs.get_context().config_at(step, conf")
    spec = rs.TrainSpec.model_validate({"name": "t", "trainable": "m:f", "schedule": json.loads(schedule)})
    configs = [(each.start, each.config["lr"]) for each in spec.schedule]
    assert configs == [(0, 0.1), (12, 0.2), (20, 0.05)]


def test_metric_and_mode_may_be_the_schedulers(make: Make) -> None:
    tuner = make(scheduler=ASHAScheduler(metric="acc", mode="max"), metric=None, mode=None)
    spec = rs.from_tuner(tuner)
    assert (spec.metric, spec.mode) == ("acc", "max")


def test_a_metric_of_the_scheduler_that_is_not_the_sweeps_stays_its_own(make: Make) -> None:
    tuner = make(scheduler=ASHAScheduler(metric="acc", mode="max"), metric=None, mode=None)
    spec = rs.from_tuner(tuner, metric="loss", mode="min")
    assert (
        spec.scheduler
        == rs.from_tuner(make(), scheduler={"asha": {"metric": "acc", "mode": "max"}}).scheduler
    )
    assert (spec.metric, spec.mode) == ("loss", "min")


def test_a_name_that_tune_made_is_the_same_tomorrow(make: Make) -> None:
    assert rs.from_tuner(make(name=None)).name == "train"


def test_resources_are_those_of_with_resources(make: Make) -> None:
    wrapped = tune.with_resources(lambda config: None, {"cpu": 2, "gpu": 0.5})
    spec = rs.from_tuner(make(wrapped))
    assert spec.resources == rs.Resources(cpu=2, gpu=0.5)
    factory = tune.PlacementGroupFactory([{"CPU": 1}, {"CPU": 2}], strategy="SPREAD")
    spec = rs.from_tuner(make(tune.with_resources(Counter, factory)))
    assert spec.resources == rs.Resources(bundles=[{"CPU": 1}, {"CPU": 2}], strategy="SPREAD")
    assert spec.trainable is Counter


def test_samples_without_an_end_are_as_many_as_there_is_time_for(make: Make) -> None:
    spec = rs.from_tuner(make(num_samples=-1, time_budget_s=60))
    assert (spec.num_samples, spec.stop.time_budget_s) == (None, 60)
    assert rs.from_tuner(make(num_samples=-1), stop={"target": 0.1}).num_samples is None
    assert rs.from_tuner(make(num_samples=-1), num_samples=3).num_samples == 3


def test_fields_take_the_place_of_what_the_tuner_says(make: Make) -> None:
    spec = rs.from_tuner(make(scheduler=MedianStoppingRule()), scheduler="asha", name="other")
    assert (spec.scheduler.kind, spec.name) == ("asha", "other")


class AsksForMore(Counter):
    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:
        return tune.PlacementGroupFactory([{"CPU": config["x"]}])


class Quiet(tune.Callback):
    pass


class OwnScheduler(FIFOScheduler):
    pass


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"mode": None}, r"tune_config\.mode: is not set", "mode="),
    ({"num_samples": -1}, r"tune_config\.num_samples: -1 ", "num_samples="),
    ({"scheduler": ResourceChangingScheduler()}, r"scheduler: ResourceChanging", "scheduler: resource_chang"),
    ({"scheduler": OwnScheduler()}, r"scheduler: .*OwnScheduler has no counterpart", 'scheduler="asha"'),
    ({"scheduler": ASHAScheduler(stop_last_trials=False)}, r"scheduler\.stop_last_trials", "max_t"),
    ({"callbacks": [7]}, r"run_config\.callbacks: 7 is not a callback", "ray.tune.Callback"),
    ({"stop": ExperimentPlateauStopper("loss")}, r"run_config\.stop: Experiment.* reports", '"window": 10'),
    (
        {"stop": CombinedStopper(TrialPlateauStopper("a"), TrialPlateauStopper("b"))},
        r"run_config\.stop: there are two TrialPlateauStoppers",
        "trial_plateau",
    ),
    ({"stop": {"name": "x"}}, r"run_config\.stop\.name: 'x' is not a number", "stop="),
    ({"failure_config": tune.FailureConfig(max_failures=-1)}, r"max_failures: -1", "failure="),
    ({"trainable": AsksForMore}, r"trainable\.default_resource_request", "resources="),
    (
        {"trainable": tune.with_resources(lambda config: None, lambda config: {"cpu": config["x"]})},
        r"trainable\.with_resources: names its resources as a function of the config",
        "resources",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("given", "said", "fix"), REFUSED, ids=[said for _, said, _ in REFUSED])
def test_what_has_no_counterpart_is_refused_by_name_and_with_the_fix(
    make: Make, given: dict[str, Any], said: str, fix: str
) -> None:
    with pytest.raises(rs.SpecError, match=said) as caught:
        rs.from_tuner(make(**given))
    assert fix in caught.value.fix


def test_all_that_has_no_counterpart_is_said_at_once_and_may_be_ignored(make: Make) -> None:
    space = {"x": tune.uniform(0, 1)}
    tuner = make(
        space=space | {"args": tune.choice([tune.uniform(0, 1)])},
        callbacks=[7],
        scheduler=ResourceChangingScheduler(),
    )
    with pytest.raises(rs.SpecError) as caught:
        rs.from_tuner(tuner)
    parts = {caught.value.field, *(other.split(":")[0] for other in caught.value.others)}
    wrong = {"run_config.callbacks", "tune_config.scheduler"}
    assert parts == wrong | {"param_space.args"}
    assert rs.from_tuner(tuner, ignore=wrong, param_space=space).scheduler.kind == "fifo"


def test_what_is_no_tuner_is_said(make: Make) -> None:
    with pytest.raises(rs.SpecError, match=r"expected a ray\.tune\.Tuner, got 7"):
        rs.from_tuner(7)


def test_the_settings_of_a_sampler_come_along(make: Make) -> None:
    samplers = pytest.importorskip("optuna").samplers
    search = optuna(
        sampler=samplers.TPESampler(seed=3, n_startup_trials=50, multivariate=True, constant_liar=False)
    )
    spec = rs.from_tuner(make(search_alg=search))
    settings = {"n_startup_trials": 50, "multivariate": True, "constant_liar": False}
    assert (spec.seed, spec.search) == (3, SearchSpec.model_validate({"tpe": settings}))
    plain = rs.from_tuner(make(search_alg=optuna(sampler=samplers.TPESampler())))
    assert (plain.seed, plain.search) == (None, SearchSpec.model_validate("tpe"))


@pytest.mark.parametrize(
    ("part", "options"),
    [
        ("gamma", {"gamma": lambda count: count // 4}),
        ("weights", {"weights": lambda count: np.ones(count)}),
        ("prior_weight", {"prior_weight": 0.5}),
        ("group", {"group": True, "multivariate": True}),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_a_sampler_has_beyond_ours_is_refused_by_name(
    make: Make, part: str, options: dict[str, Any]
) -> None:
    samplers = pytest.importorskip("optuna").samplers
    tuner = make(search_alg=optuna(sampler=samplers.TPESampler(**options)))
    with pytest.raises(rs.SpecError, match=rf"^tune_config\.search_alg\.sampler\.{part}: .*no counterpart"):
        rs.from_tuner(tuner)
    assert rs.from_tuner(tuner, search="tpe").search == SearchSpec.model_validate("tpe")
    assert rs.from_tuner(tuner, ignore=[f"tune_config.search_alg.sampler.{part}"]).search.kind == "tpe"


@pytest.mark.parametrize(
    "state", [42, np.random.default_rng(42), np.random.RandomState(42)], ids=["number", "generator", "state"]
)
def test_the_seed_of_variants_comes_along(make: Make, state: Any) -> None:
    spec = rs.from_tuner(make(search_alg=BasicVariantGenerator(random_state=state)))
    assert spec.seed == 42
    unknown = np.random.RandomState(np.random.PCG64(42))
    for other in (None, np.random.default_rng(), np.random.RandomState(), unknown):
        assert rs.from_tuner(make(search_alg=BasicVariantGenerator(random_state=other))).seed is None


def test_values_that_a_whole_grid_shares_are_refused(make: Make) -> None:
    search = BasicVariantGenerator(constant_grid_search=True)
    space = {"x": tune.uniform(0, 1), "g": tune.grid_search([1, 2])}
    with pytest.raises(rs.SpecError, match=r"^tune_config\.search_alg\.constant_grid_search: "):
        rs.from_tuner(make(search_alg=search, space=space))
    assert rs.from_tuner(make(search_alg=search)).param_space == {"x": {"uniform": [0.0, 1.0]}}
