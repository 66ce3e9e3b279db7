"""Where the calls of Ray Tune and Ray Train look, and what they need there."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import ray.train
import ray.tune
from ray.train._internal import session
from ray.train.v2._internal import util
from ray.train.v2._internal.execution import train_fn_utils
from ray.train.v2.api import train_fn_utils as train_calls
from ray.tune.registry import _ParameterRegistry
from ray.tune.result import TRIAL_INFO
from ray.tune.trainable import trainable_fn_utils
from ray.tune.trainable import util as tune_util

from raysweep.documents.code import tune_objects
from raysweep.raycompat.in_trial import calls, trainable
from raysweep.raycompat.in_trial.trainworker import TrainWorker
from tests.unit.raycompat.moved import check_uses, parameters, ray_version, since


def test_tunes_calls_look_where_the_session_is_put() -> None:
    assert importlib.import_module(calls.TUNE_SESSION) is session
    check_uses(session.get_session, "return _session")
    check_uses(
        trainable_fn_utils, "get_session().report(metrics, checkpoint=checkpoint)", "loaded_checkpoint"
    )
    read = (
        "trial_name",
        "trial_id",
        "trial_resources",
        "trial_dir",
        "experiment_name",
        "world_size",
        "world_rank",
    )
    assert [name for name in read if not hasattr(calls.TuneSession, name)] == []
    check_uses(trainable_fn_utils._in_tune_session, "world_rank is None")


@since(2, 54)
def test_trains_calls_look_where_the_worker_is_put() -> None:
    assert importlib.import_module(calls.TRAIN_WORKER) is train_fn_utils
    check_uses(train_fn_utils.get_train_fn_utils, "return _train_fn_utils")
    check_uses(util.requires_train_worker, "_in_tune_session()")
    check_uses(train_calls.report, "get_train_fn_utils().report(")
    assert not TrainWorker.__abstractmethods__
    given = parameters(train_fn_utils.TrainFnUtils.report)
    assert given == parameters(TrainWorker.report)


def test_the_wrappers_hold_what_is_read_of_them() -> None:
    check_uses(
        tune_util.with_parameters, "_ParameterRegistry()", "class _Inner(trainable)", "def inner(config)"
    )
    check_uses(tune_util.with_resources, "trainable._resources = pgf", "class ResourceTrainable(trainable)")
    assert parameters(_ParameterRegistry.get) == ["self", "k"]
    check_uses(_ParameterRegistry, "self.to_flush", "self.references")

    def train(config: object, data: object = None) -> None: ...

    wrapped = ray.tune.with_resources(ray.tune.with_parameters(train, data=1), {"cpu": 2})
    assert tune_objects.has_parameters(wrapped)
    assert tune_objects.unwrapped(wrapped) is train
    assert tune_objects.resources_of(wrapped).bundles == [{"CPU": 2}]

    class Trains(ray.tune.Trainable): ...

    both = ray.tune.with_parameters(ray.tune.with_resources(Trains, {"cpu": 2}), data=1)
    assert tune_objects.is_tune_class(both)
    assert tune_objects.has_parameters(both)
    assert tune_objects.unwrapped(both) is Trains
    assert tune_objects.resources_of(both).bundles == [{"CPU": 2}]
    assert tune_objects.without_resources(ray.tune.with_resources(Trains, {"cpu": 2})) is Trains
    assert not tune_objects.has_parameters(train)
    assert tune_objects.resources_of(Trains) is None


def test_a_class_takes_its_folder_and_its_trial_as_they_are_given(tmp_path: Path) -> None:
    source = inspect.getsource(ray.tune.Trainable)
    folder = "self._setup_logdir()" if ray_version() >= (2, 56) else "self._create_logger(self.config"
    for used in (folder, "self.config.pop(TRIAL_INFO, None)", "checkpoint_result.metrics"):
        assert used in source
    assert TRIAL_INFO == "__trial_info__"
    state = inspect.getsource(ray.tune.Trainable.get_state)
    for name in ("iteration", "time_total", "timesteps_total", "episodes_total"):
        assert f'"{name}"' in state
    info = trainable.make_info("t", "00001", {"CPU": 1.0})
    instance = trainable.make(ray.tune.Trainable, {}, info, lambda: tmp_path)
    assert (instance.logdir, instance.trial_name, instance.trial_id) == (str(tmp_path), "t", "00001")
    assert instance.trial_resources.bundles == [{"CPU": 1.0}]
    filled = set(instance.get_auto_filled_metrics())
    reported = {"time_this_iter_s", "time_total_s"}
    assert filled - reported <= trainable.FILLED_IN
