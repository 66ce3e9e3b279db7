"""`trainer.fit()` in a trial: what is counted and what refused, which reports count. Without a cluster."""

from __future__ import annotations

import asyncio
import math
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray")

from raysweep.errors import RaysweepError, SpecError, TrialStopped
from raysweep.messages import Job, Judged
from raysweep.raycompat.in_trial.trialrun import Asked, Reports, RunPlace, TrialRun, asked_by, place_run
from raysweep.raycompat.in_trial.validation import Validations
from raysweep.testing import run_trial
from raysweep.worker.ray_calls.train_runs import check_asked, check_validation
from raysweep.worker.session import Session
from raysweep.worker.sweep_info import InnerRoom, SweepPlace
from raysweep.worker.validation import pack, validate

ONE = {"CPU": 1.0}


def asked(workers: int = 2, strategy: str = "PACK", **bundle: float) -> Asked:
    return Asked(num_workers=workers, bundle=bundle or ONE, strategy=strategy)


def asked_range(least: int, most: int) -> Asked:
    return replace(asked(most), min_workers=least)


@pytest.mark.parametrize(
    ("wanted", "room"),
    [
        (asked(), InnerRoom(bundles=(ONE, ONE))),
        (asked(1), InnerRoom(bundles=(ONE, ONE), first=1)),
        (asked(CPU=0.5), InnerRoom(bundles=(ONE, ONE))),
        (asked(CPU=0.1 + 0.2), InnerRoom(bundles=({"CPU": 0.3},) * 2)),
        (asked(strategy="SPREAD"), InnerRoom(bundles=(ONE, ONE), strategy="SPREAD")),
        (asked(), InnerRoom(bundles=(ONE, ONE), strategy="STRICT_SPREAD")),
    ],
)
def test_a_run_may_take_what_its_trial_holds_and_less(wanted: Asked, room: InnerRoom) -> None:
    assert check_asked(wanted, room) == wanted.num_workers


@pytest.mark.parametrize(("held", "workers"), [(2, 2), (3, 3), (4, 4), (5, 4)])
def test_a_range_is_as_many_workers_as_the_trial_holds(held: int, workers: int) -> None:
    assert check_asked(asked_range(2, 4), InnerRoom(bundles=(ONE,) * held)) == workers


@pytest.mark.parametrize(("split", "whole", "cpus"), [(1, 0, 1), (2, 0, 2), (1, 1, 3), (0, 1, 2), (0, 0, 0)])
def test_data_sets_need_a_cpu_each_and_one_in_each_worker_where_they_are_not_split(
    split: int, whole: int, cpus: int
) -> None:
    wanted = replace(asked(), split=split, whole=whole)
    check_asked(wanted, InnerRoom(bundles=(ONE, ONE), data_cpus=cpus))
    if not cpus:
        return
    with pytest.raises(SpecError) as refused:
        check_asked(wanted, InnerRoom(bundles=(ONE, ONE), data_cpus=cpus - 1))
    assert refused.value.field == "scaling.driver.data_cpus"
    needed = "{num_workers: 2, resources: {cpu: 1}, driver: " + f"{{data_cpus: {cpus}}}}}"
    assert needed in str(refused.value)


@pytest.mark.parametrize(
    ("wanted", "room", "says"),
    [
        (asked(), InnerRoom(), "write scaling: {num_workers: 2, resources: {cpu: 1}, driver: {}}"),
        (asked(3), InnerRoom(bundles=(ONE, ONE)), "num_workers: 3"),
        (asked(CPU=2), InnerRoom(bundles=(ONE, ONE)), "resources: {cpu: 2}"),
        (asked(GPU=1), InnerRoom(bundles=(ONE, ONE)), "resources: {cpu: 0, gpu: 1}"),
        (asked(), InnerRoom(bundles=(ONE, {"CPU": 0.5})), "and the trial holds {CPU: 1}, {CPU: 0.5}"),
        (asked(strategy="SPREAD"), InnerRoom(bundles=(ONE, ONE)), "placement_strategy: SPREAD"),
        (asked_range(2, 8), InnerRoom(bundles=(ONE,)), "{num_workers: 2, resources: {cpu: 1}, driver: {}}"),
        (asked_range(2, 8), InnerRoom(), "at least 2 workers of {CPU: 1}"),
    ],
)
def test_a_run_may_take_no_more_and_is_told_what_to_write(wanted: Asked, room: InnerRoom, says: str) -> None:
    with pytest.raises(SpecError) as refused:
        check_asked(wanted, room)
    assert refused.value.field == "scaling"
    assert says in str(refused.value)


def trainer_of(**fields: Any) -> Any:
    from ray.train import ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    scaling = fields.pop("scaling", {"num_workers": 2})
    return DataParallelTrainer(print, scaling_config=ScalingConfig(**scaling), **fields)


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"scaling": {"num_workers": 0}}, "num_workers=0"),
        ({"scaling": {"num_workers": 1, "label_selector": {"a": "b"}}}, "label_selector"),
    ],
)
def test_what_a_trial_cannot_give_is_refused_by_name(fields: dict[str, Any], what: str) -> None:
    with pytest.raises(SpecError, match=what):
        check_asked(asked_by(trainer_of(**fields)), InnerRoom(bundles=(ONE, ONE)))


def validated(task: Any = None, **options: Any) -> Any:
    from ray.train.v2.api.validation_config import ValidationConfig

    return ValidationConfig(fn=print, task_config=task, ray_remote_kwargs=options or None)


def place_of(evaluations: dict[str, float] | None = None, **fields: Any) -> SweepPlace:
    fields = {"evaluations_ahead": 1, "validates": True, "evaluation_resources": evaluations or ONE} | fields
    return SweepPlace(sweep_id="s-1", storage_path="", resources={}, **fields)


@pytest.mark.parametrize(
    ("options", "held", "fields", "says"),
    [
        ({}, {}, {"evaluations_ahead": None}, "evaluate: the trainer has .* holds no resources.*cpu: 1}}"),
        (
            {},
            {},
            {"validates": False},
            "evaluate.trainable: .*evaluates by something else.*validation_config",
        ),
        ({"num_cpus": 2}, {}, {}, "evaluate.resources: .*asks for {CPU: 2}.*has {CPU: 1}.*{cpu: 2}"),
        ({"num_gpus": 1}, {"CPU": 2.0}, {}, "evaluate.resources: .*{cpu: 0, gpu: 1}"),
        ({"resources": {"big": 1}}, {}, {}, "evaluate.resources: .*custom: {big: 1}"),
        ({"max_retries": 2}, {}, {}, "ray_remote_kwargs: 'max_retries' .*evaluate.tries"),
        (
            {"runtime_env": {}},
            {},
            {},
            "ray_remote_kwargs: 'runtime_env' does not work in a trial; leave it out",
        ),
    ],
)
def test_a_validation_that_the_sweep_does_not_make_is_refused_with_the_line_to_write(
    options: dict[str, Any], held: dict[str, float], fields: dict[str, Any], says: str
) -> None:
    asked = asked_by(trainer_of(validation_config=validated(**options)))
    with pytest.raises(SpecError, match=says) as refused:
        check_validation(asked, place_of(held, **fields))
    assert "\n" not in str(refused.value)


def test_a_validation_in_resources_that_the_sweep_holds_is_not_refused() -> None:
    gpus = validated(num_gpus=1, num_cpus=0.5)
    for config in (validated(), validated(num_cpus=1), validated(num_cpus=0)):
        check_validation(asked_by(trainer_of(validation_config=config)), place_of({"CPU": 1.0}))
    check_validation(asked_by(trainer_of(validation_config=gpus)), place_of({"CPU": 2.0, "GPU": 1.0}))
    check_validation(asked_by(trainer_of()), place_of(evaluations_ahead=None, validates=False))


def test_a_report_asks_for_the_call_that_ray_train_would_make() -> None:
    from ray.train.v2.api.validation_config import ValidationTaskConfig

    own = ValidationTaskConfig(fn_kwargs={"a": 1, "b": 1}, timeout_s=9)
    made = Validations(validated(own), lambda report: None)
    assert made.call_of(True) == (print, {"a": 1, "b": 1}, 9)
    asked = ValidationTaskConfig(fn_kwargs={"b": 2})
    assert made.call_of(asked) == (print, {"a": 1, "b": 2}, None)


def test_ray_train_hears_what_came_of_a_validation_and_the_run_waits_for_it() -> None:
    verdicts: dict[int, tuple[dict[str, Any], str]] = {}
    told: list[Any] = []
    manager = SimpleNamespace(update_checkpoints_with_validation_result=told.append)
    made = Validations(validated(), verdicts.get)
    made.manager = manager
    made.expect(0, "first")
    made.expect(1, "second")
    made.settle()
    assert told == []
    verdicts[1] = {"acc": 0.5}, ""

    async def wait() -> None:
        waiting = asyncio.ensure_future(made.before_controller_shutdown())
        await asyncio.sleep(0.3)
        assert not waiting.done()
        verdicts[0] = {}, "it raised"
        await asyncio.wait_for(waiting, 5)

    asyncio.run(wait())
    made.drop("third")
    said = [(name, found[0], found[1].value) for each in told for name, found in each.items()]
    assert said == [
        ("second", {"acc": 0.5}, "VALIDATED"),
        ("first", {}, "VALIDATION_FAILED"),
        ("third", {}, "VALIDATION_FAILED"),
    ]


def test_a_report_that_is_repeated_asks_for_no_second_validation() -> None:
    asked: list[Any] = []
    made = Validations(validated(), lambda report: None)
    told: list[Any] = []
    made.manager = SimpleNamespace(update_checkpoints_with_validation_result=told.append)
    reports = Reports(lambda metrics, checkpoint, validation: asked.append(validation), made)
    reports.after_worker_group_start(None)
    reports.after_report(SimpleNamespace(checkpoint=None, validation=False), [{}])
    reports.after_worker_group_start(None)
    reports.after_report(SimpleNamespace(checkpoint="c", validation=True), [{}])
    assert asked == [None]
    assert [*told[0]] == ["c"]


def test_a_trial_knows_what_came_of_a_validation_once_it_is_in_or_will_never_be() -> None:
    place = place_of()
    session = Session(Job(trial=0, attempt=1, config={}, seed=0), place, Silence())  # type: ignore[arg-type]
    assert session.find_verdict(0) is None
    session.tell(Judged(0, 1, 0, metrics={"acc": "NaN"}))
    found = session.find_verdict(0)
    assert found is not None
    assert math.isnan(found[0]["acc"])
    session.answer(1)
    assert session.find_verdict(1) == ({}, "it is not validated")
    assert session.find_verdict(2) is None
    session.stop("scheduler")
    assert session.find_verdict(2) == ({}, "it is not validated")


def test_a_call_travels_and_returns_flat_metrics(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("7")

    def check(checkpoint: Any, scale: int) -> dict[str, Any]:
        with checkpoint.as_directory() as folder:
            return {"eval": {"acc": scale * int((Path(folder) / "model").read_text())}}

    assert validate(tmp_path, pack(check, {"scale": 2})) == {"eval/acc": 14}
    with pytest.raises(RaysweepError, match="returned a int: return a dict"):
        validate(tmp_path, pack(lambda checkpoint: 3, {}))


def test_a_call_that_cannot_travel_is_refused() -> None:
    lock, large = threading.Lock(), bytes(2_000_000)
    with pytest.raises(SpecError, match=r"validation_config\.fn: it cannot be sent .*create inside it"):
        pack(lambda checkpoint: lock, {})
    with pytest.raises(SpecError, match=r"validation_config\.fn: it has 2,000,\d+ bytes .*load inside it"):
        pack(print, {"data": large})


def test_what_a_trainer_asks_for_is_read_as_ray_reads_it() -> None:
    found = asked_by(trainer_of(scaling={"num_workers": 3, "use_gpu": True, "placement_strategy": "SPREAD"}))
    assert found == Asked(num_workers=3, bundle={"GPU": 1.0}, strategy="SPREAD")


def test_a_range_and_data_sets_are_read_as_ray_reads_them() -> None:
    from ray.train import DataConfig

    sets = {"train": [1], "valid": [2], "test": [3]}
    found = asked_by(trainer_of(scaling={"num_workers": (2, 6)}, datasets=sets))
    assert (found.min_workers, found.num_workers, found.split, found.whole) == (2, 6, 3, 0)
    found = asked_by(trainer_of(datasets=sets, dataset_config=DataConfig(datasets_to_split=["train"])))
    assert (found.min_workers, found.split, found.whole) == (None, 1, 2)


def test_a_run_has_the_number_of_workers_that_it_is_given_and_leaves_its_trainer_as_it_is(
    tmp_path: Path,
) -> None:
    from ray.train import RunConfig

    trainer = trainer_of(scaling={"num_workers": (1, 4)}, run_config=RunConfig(name="mine"))
    before = dict(vars(trainer))
    place = RunPlace(storage_path=str(tmp_path), folder="a")
    run = TrialRun(trainer, place, None, 0, lambda *each: None, workers=3)
    assert vars(trainer) == before
    assert trainer.run_config.name == "mine"
    scaling = run._trainer.train_run_context.scaling_config
    assert run._trainer.scaling_config is scaling
    assert (scaling.num_workers, scaling.max_workers, scaling.min_workers) == (3, 3, 3)


def test_checkpoints_go_where_the_trainer_says_else_below_the_sweep() -> None:
    from ray.train import RunConfig

    own = trainer_of(run_config=RunConfig(storage_path="s3://bucket/runs"))
    assert place_run(own, "/sweeps/s/train", "s-1", "00000-1-0").storage_path == "s3://bucket/runs/s-1"
    assert place_run(trainer_of(), "/sweeps/s/train", "s-1", "00000-1-0").storage_path == "/sweeps/s/train"


def test_a_later_attempt_removes_what_earlier_ones_of_its_trial_left_and_nothing_else(tmp_path: Path) -> None:
    for name in ("00001-1-0", "00001-2-0", "00001-3-0", "00002-1-0", "100001-1-0"):
        (tmp_path / name / "checkpoint").mkdir(parents=True)
    run = TrialRun(
        trainer_of(),
        RunPlace(storage_path=str(tmp_path), folder="00001-3-0"),
        group=None,
        first=0,
        on_report=lambda *each: None,
    )
    run.remove_earlier("00001-")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["00001-3-0", "00002-1-0", "100001-1-0"]
    run.remove()
    run.remove()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["00002-1-0", "100001-1-0"]


def test_a_run_keeps_its_newest_checkpoint_only_unless_its_config_says_more(tmp_path: Path) -> None:
    from ray.train import CheckpointConfig, RunConfig

    def kept(**fields: Any) -> Any:
        trainer = trainer_of(run_config=RunConfig(name="mine", **fields))
        place = RunPlace(storage_path=str(tmp_path), folder="a")
        mine = TrialRun(trainer, place, None, 0, lambda *each: None)._trainer
        assert mine.run_config.name == "a"
        assert mine.train_run_context.run_config is mine.run_config
        return mine.run_config.checkpoint_config.num_to_keep

    assert kept() == 1
    assert kept(checkpoint_config=CheckpointConfig(num_to_keep=3)) == 3


class Made:
    """What `Reports` hands on, as workers report and start again."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self._reports = Reports(lambda metrics, *others: self.steps.append(metrics["step"]))

    def start(self) -> Made:
        self._reports.after_worker_group_start(None)
        return self

    def report(self, *steps: int, checkpoint: bool = False) -> Made:
        for step in steps:
            told = SimpleNamespace(checkpoint=object() if checkpoint else None, validation=False)
            self._reports.after_report(told, [{"step": step}, {"step": -1}])
        return self


def test_workers_that_start_again_repeat_the_reports_after_their_checkpoint_and_these_count_once() -> None:
    made = Made().start().report(1).report(2, checkpoint=True).report(3, 4)
    assert made.start().report(3, 4, 5).steps == [1, 2, 3, 4, 5]
    assert made.start().report(3).report(4, checkpoint=True).start().report(5, 6).steps == [1, 2, 3, 4, 5, 6]


def test_workers_without_a_checkpoint_repeat_all() -> None:
    assert Made().start().report(1, 2).start().report(1, 2, 3).steps == [1, 2, 3]


def test_an_error_in_handing_on_is_no_error_of_the_workers() -> None:
    def refuse(metrics: dict[str, Any], checkpoint: Any, validation: Any) -> None:
        raise ValueError("no JSON")

    reports = Reports(refuse)
    with pytest.raises(BaseException, match="no JSON") as raised:
        reports.after_report(SimpleNamespace(checkpoint=None, validation=False), [{}])
    assert not isinstance(raised.value, Exception), "Ray Train would try again"


class Silence:
    """A link on which nothing is said."""

    def send(self, message: Any, *, waits: bool = False) -> None:
        pass


@pytest.mark.parametrize(
    ("told", "is_over"),
    [
        ({}, True),
        ({"wants_checkpoint": True}, False),
        ({"allows": "checkpoint"}, False),
        ({"allows": "report"}, False),
    ],
)
def test_a_trial_that_only_waits_ends_when_it_may_make_nothing_more(
    told: dict[str, Any], is_over: bool
) -> None:
    place = SweepPlace(sweep_id="s-1", storage_path="", resources={})
    session = Session(Job(trial=0, attempt=1, config={}, seed=0), place, Silence())  # type: ignore[arg-type]
    session.raise_if_over()
    session.stop("scheduler", **told)
    if not is_over:
        session.raise_if_over()
        session.interrupt()
    with pytest.raises(TrialStopped):
        session.raise_if_over()


def fits(config: dict[str, Any]) -> None:
    trainer_of().fit()


def test_a_trial_without_a_cluster_says_that_it_needs_one() -> None:
    import ray.train.v2.api.data_parallel_trainer as theirs

    before = theirs.DataParallelTrainer.fit
    (attempt,) = run_trial(fits, {})
    assert attempt.error is not None
    assert "isolation: worker" in attempt.error["message"]
    assert theirs.DataParallelTrainer.fit is before, "and leaves Ray Train as it was"


def calls_back(config: dict[str, Any]) -> None:
    from ray.tune.integration.ray_train import TuneReportCallback

    TuneReportCallback().after_report(None, [{}], None)


def test_rays_callback_for_this_does_nothing_in_a_trial_and_is_its_own_again_after() -> None:
    from ray.tune.integration.ray_train import TuneReportCallback

    before = dict(vars(TuneReportCallback))
    (attempt,) = run_trial(calls_back, {})
    assert attempt.end == "returned", attempt.error
    assert dict(vars(TuneReportCallback)) == before
