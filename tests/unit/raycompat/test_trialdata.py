"""Ray Data's and Ray Train's insides, as the data sets of a trial's run use them; what becomes of a task."""

from __future__ import annotations

import importlib
import inspect
from types import SimpleNamespace
from typing import Any

import pytest
import ray.data
from ray import cloudpickle
from ray.actor import ActorClass
from ray.data._internal.cluster_autoscaler import ClusterAutoscaler
from ray.data._internal.execution import streaming_executor
from ray.data._internal.execution.operators import hash_shuffle
from ray.data._internal.execution.operators.actor_pool_map_operator import ActorPoolMapOperator
from ray.data._internal.iterator.stream_split_iterator import SplitCoordinator, StreamSplitDataIterator
from ray.data._internal.logical.optimizers import get_execution_plan
from ray.remote_function import RemoteFunction
from ray.train import DataConfig
from ray.train.v2._internal.callbacks.datasets import DatasetsCallback
from ray.train.v2._internal.data_integration.interfaces import DatasetShardProvider
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from raysweep.raycompat.in_trial import calls, dataplace, datasplits
from raysweep.raycompat.in_trial.dataplace import DataPlace, leave_data
from raysweep.raycompat.in_trial.trialdata import Shards, Shares, TrialDatasets, split_names
from raysweep.raycompat.in_trial.trialrun import _LEFT_OUT
from tests.unit.raycompat.moved import check_uses, parameters, since

PLACE = DataPlace(group="a group", bundle=3, cpus=2)


def test_all_that_rays_callback_for_data_sets_does_is_done_here() -> None:
    assert DatasetsCallback.__name__ in _LEFT_OUT
    check_uses(DataParallelTrainer._create_default_callbacks, "DatasetsCallback(")
    theirs = {name for name in vars(DatasetsCallback) if not name.startswith("_")}
    # Until 2.57 it tells Ray Data which CPUs are not its own: in a trial all outside of the bundle.
    theirs.discard("get_train_total_resources")
    assert theirs <= set(vars(TrialDatasets))
    for name in theirs:
        assert parameters(getattr(TrialDatasets, name)) == parameters(getattr(DatasetsCallback, name))
    check_uses(DatasetsCallback.before_init_train_context, '"dataset_shard_provider": [')
    check_uses(DatasetsCallback, "v() if callable(v) else v")
    assert parameters(DatasetShardProvider.get_dataset_shard) == ["self", "dataset_info"]
    assert parameters(DataConfig.configure)[1:5] == [
        "datasets",
        "world_size",
        "worker_handles",
        "worker_node_ids",
    ]
    check_uses(DataConfig.configure, "self._datasets_to_split", "streaming_split(")


def test_a_split_makes_its_coordinator_where_it_is_replaced() -> None:
    check_uses(
        StreamSplitDataIterator.create, "SplitCoordinator.options(", ".remote(base_dataset, n, locality"
    )
    check_uses(StreamSplitDataIterator, "self._coord_actor = ")
    theirs: Any = SplitCoordinator
    assert theirs.__ray_metadata__.num_cpus == 0
    own = theirs.__ray_metadata__.modified_class.__ray_actor_class__
    assert parameters(own.__init__)[:4] == ["self", "dataset", "n", "locality_hints"]
    assert parameters(own.get_dataset_tag)[:2] == ["self", "output_split_idx"]
    module: Any = datasplits.stream_split_iterator
    with datasplits.coordinators_at(PLACE):
        assert module.SplitCoordinator is not SplitCoordinator
    assert module.SplitCoordinator is SplitCoordinator


def test_what_an_executor_asks_and_counts_on_is_where_it_is_replaced() -> None:
    check_uses(
        streaming_executor, "= create_cluster_autoscaler(", "_cluster_autoscaler.get_total_resources()"
    )
    assert ClusterAutoscaler.__abstractmethods__ == {
        "try_trigger_scaling",
        "on_executor_shutdown",
        "get_total_resources",
    }
    check_uses(hash_shuffle, "= _get_total_cluster_resources()")
    executor = streaming_executor.StreamingExecutor
    assert "force" in parameters(executor.shutdown)
    assert "execute" in vars(executor)
    check_uses(get_execution_plan, "return ")
    assert {"min_max_resource_requirements", "incremental_resource_usage"} <= set(vars(ActorPoolMapOperator))


@since(2, 58)
def test_a_data_set_runs_the_plan_whose_cpus_are_counted() -> None:
    check_uses(ray.data.Dataset._execute_dag, "get_execution_plan(self._logical_plan)", "physical_plan.dag")


def test_all_tasks_and_actors_are_made_by_one_call() -> None:
    check_uses(RemoteFunction, "return self._remote(", "return func_cls._remote(", "self._function = ")
    check_uses(ActorClass, "return self._remote(", "return actor_cls._remote(")
    for each in (RemoteFunction, ActorClass):
        assert (
            inspect.signature(each._remote)
            .parameters[  # type: ignore[attr-defined]
                "task_options" if each is RemoteFunction else "actor_options"
            ]
            .kind
            is inspect.Parameter.VAR_KEYWORD
        )


@pytest.mark.parametrize(
    ("module", "options", "is_placed"),
    [
        ("ray.data._internal.execution.x", {}, True),
        (
            "ray.data._internal.execution.x",
            {"num_cpus": 1, "scheduling_strategy": "SPREAD", "memory": 5},
            True,
        ),
        ("ray.data._internal.execution.x", {"num_cpus": 0.5, "label_selector": {"a": "b"}}, True),
        ("ray.data._internal.stats", {"num_cpus": 0}, False),
        ("ray.data._internal.stats", {"num_cpus": 1, "lifetime": "detached"}, False),
        ("ray.train.v2.x", {"num_cpus": 1}, False),
        ("my.ray.data.x", {"num_cpus": 1, "memory": 5}, False),
    ],
)
def test_what_of_ray_data_asks_for_cpus_goes_to_the_bundle_and_nothing_else_does(
    module: str, options: dict[str, Any], is_placed: bool
) -> None:
    made: list[tuple[Any, ...]] = []
    remote = dataplace._placing(PLACE, lambda each: module)(
        lambda self, *args, **options: made.append((args, options))
    )
    remote("it", 1, name="n", **options)
    ((args, given),) = made
    assert args == (1,)
    strategy = given.pop("scheduling_strategy", None)
    if not is_placed:
        assert given == {"name": "n", **options}
        return
    assert (strategy.placement_group, strategy.placement_group_bundle_index) == ("a group", 3)
    assert given == {"name": "n", **({"num_cpus": options["num_cpus"]} if "num_cpus" in options else {})}


@since(2, 60)
def test_what_lists_parquet_files_takes_its_place_along_to_a_task() -> None:
    theirs = importlib.import_module(dataplace.LISTING).FooterFileIndexer
    check_uses(theirs.list_files, "FooterReaderActor.options(", "range(self._num_actors)")
    check_uses(theirs.__init__, "self._max_inflight_batches = ")
    given = theirs(ignore_missing_paths=True)
    assert type(cloudpickle.loads(cloudpickle.dumps(given))) is theirs
    PLACE.enter()
    once = cloudpickle.loads(cloudpickle.dumps(given))
    leave_data()
    for placed in (once, cloudpickle.loads(cloudpickle.dumps(once))):
        assert isinstance(placed, theirs)
        assert (placed._num_actors, placed._max_inflight_batches) == (2, 4)
        assert {**vars(placed), **vars(given)} == vars(given)
    assert type(cloudpickle.loads(cloudpickle.dumps(given))) is theirs


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of a first DataContext, whatever it says
def test_ray_data_is_as_it_was_once_the_trial_has_ended() -> None:
    places: list[tuple[Any, str]] = [
        (RemoteFunction, "_remote"),
        (ActorClass, "_remote"),
        (streaming_executor, "create_cluster_autoscaler"),
        (streaming_executor.StreamingExecutor, "execute"),
        (hash_shuffle, "_get_total_cluster_resources"),
    ]
    before = [getattr(owner, name) for owner, name in places]
    context = dict(vars(ray.data.DataContext.get_current()))
    for _ in range(2):
        PLACE.enter()
    inside = [getattr(owner, name) for owner, name in places]
    leave_data()
    assert not [each for each, old in zip(inside, before, strict=True) if each is old]
    assert [getattr(owner, name) for owner, name in places] == before
    assert vars(ray.data.DataContext.get_current()) == context
    calls.leave_data()


def test_what_runs_still_is_ended_with_the_trial() -> None:
    ended: list[bool] = []

    class Executor:
        def shutdown(self, force: bool) -> None:
            ended.append(force)

    running = Executor()
    dataplace._noting(lambda self: None)(running)
    leave_data()
    leave_data()
    assert ended == [True]


@pytest.mark.parametrize(
    ("cpus", "split", "whole", "workers", "shares"),
    [
        (1, 1, 0, 4, Shares(split=(1,), whole=1)),
        (5, 2, 0, 4, Shares(split=(3, 2), whole=2)),
        (4, 1, 1, 3, Shares(split=(1,), whole=1)),
        (9, 1, 1, 3, Shares(split=(3,), whole=2)),
        (4, 0, 2, 2, Shares(split=(), whole=1)),
    ],
)
def test_cpus_are_divided_and_none_is_given_twice(
    cpus: int, split: int, whole: int, workers: int, shares: Shares
) -> None:
    assert Shares.of(cpus, split, whole, workers) == shares
    assert sum(shares.split) + shares.whole * whole * workers <= cpus


def test_which_data_sets_are_split_is_said_by_the_trainers_config() -> None:
    sets: dict[str, Any] = {"a": [1], "b": [2]}
    assert split_names(DataParallelTrainer(print, datasets=sets)) == ("a", "b")
    some = DataConfig(datasets_to_split=["b"])
    assert split_names(DataParallelTrainer(print, datasets=sets, dataset_config=some)) == ("b",)


def test_a_shard_of_another_name_is_refused_with_those_that_are_there() -> None:
    shards = Shards({"train": "an iterator"})
    assert shards.get_dataset_shard(SimpleNamespace(dataset_name="train")) == "an iterator"
    with pytest.raises(KeyError, match="no data set 'valid' in its datasets: there are 'train'"):
        shards.get_dataset_shard(SimpleNamespace(dataset_name="valid"))
