"""The data sets of a Ray Train run inside a trial: split in its process, and read in its bundle for data.

Ray Train has an actor which has the data sets split when the workers ask for theirs. Here they are split
before the workers begin, in the trial's process. It owns the coordinators of the splits, which own what
reads: what ends that process, or the coordinators, ends all of it. Imports Ray Train and Ray Data.
"""

from __future__ import annotations

import copy
import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import ray
from ray.data import DataContext, Dataset
from ray.data._internal.execution.operators.actor_pool_map_operator import ActorPoolMapOperator
from ray.data._internal.execution.operators.base_physical_operator import AllToAllOperator
from ray.data._internal.iterator.stream_split_iterator import StreamSplitDataIterator
from ray.data._internal.logical.optimizers import get_execution_plan
from ray.train.v2._internal.execution.callback import WorkerGroupCallback
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from raysweep.raycompat.in_trial.dataplace import DataPlace
from raysweep.raycompat.in_trial.datasplits import coordinators_at

GONE_S: Final = 2.0
"""The longest wait until a coordinator that was killed is gone."""


class DataRefused(Exception):
    """A data set cannot be read in a trial. Its arguments: the field, what is wrong, and what to do."""


class EndsRun(BaseException):
    """Not an Exception: Ray Train's controller would take it for one of its own, and might try again."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The division of the CPUs for data, so that no data set waits for CPUs that another one keeps."""

    split: tuple[int, ...]
    """Of each data set that is split among the workers."""
    whole: int
    """Of each worker, for each data set that it reads for itself."""

    @staticmethod
    def of(cpus: int, split: int, whole: int, workers: int) -> Shares:
        """Equal ones; what is left of the division goes to the first that are split."""
        each, rest = divmod(cpus, split + whole * workers)
        return Shares(split=tuple(each + (number < rest) for number in range(split)), whole=each)


def split_names(trainer: DataParallelTrainer) -> tuple[str, ...]:
    """The data sets of a trainer that are split among its workers; each reads the others for itself."""
    given = getattr(trainer.data_config, "_datasets_to_split", "all")
    return tuple(name for name in trainer.datasets if given == "all" or name in given)


class TrialDatasets(WorkerGroupCallback):
    """Replaces Ray Train's callback for data sets.

    Args:
        trainer: Whose data sets they are.
        place: The bundle, and all CPUs of it.
        workers: How many there are.
    """

    def __init__(self, trainer: DataParallelTrainer, place: DataPlace, workers: int) -> None:
        self._datasets: dict[str, Any] = trainer.datasets
        self._config = copy.deepcopy(trainer.data_config)
        self._context = copy.deepcopy(DataContext.get_current())
        self._place = place
        names = split_names(trainer)
        self._streams = len(names) + (len(self._datasets) - len(names)) * workers
        shares = Shares.of(place.cpus, len(names), len(self._datasets) - len(names), workers)
        self._shares = dict.fromkeys(self._datasets, shares.whole)
        self._shares.update(zip(names, shares.split, strict=True))
        self.of_worker = place.with_cpus(max(1, shares.whole))
        """The place for the data that a worker reads for itself."""
        self._coordinators: list[Any] = []

    def check(self) -> None:
        """See that each data set can be read with its part of the CPUs, as far as they are made already.

        Raises: DataRefused.
        """
        for name, dataset in self._datasets.items():
            if isinstance(dataset, Dataset):
                self._check(name, dataset)

    def _check(self, name: str, dataset: Any) -> None:
        needs = cpus_needed(dataset)
        if needs <= self._shares[name] + 1e-6:
            return
        shared = f", as {self._streams} share them" * (self._streams > 1)
        raise DataRefused(
            "scaling.driver.data_cpus",
            f"the data set {name!r} asks for {needs:g} CPUs at once (one task, and the actors that its pools"
            f" begin with), and has {self._shares[name]}{shared}",
            f"write data_cpus: {math.ceil(needs) * self._streams} into scaling.driver of the spec, or have"
            " smaller pools",
        )

    # --- what Ray Train calls

    def before_init_train_context(self, workers: list[Any]) -> dict[str, list[Any]]:
        self.close()
        nodes = [worker.metadata.node_id for worker in workers]
        shards: list[dict[str, Any]] = [{} for _ in workers]
        for name, given in self._datasets.items():
            dataset = given
            if callable(given):
                dataset = given()
                try:
                    self._check(name, dataset)
                except DataRefused as error:
                    raise EndsRun(error) from error
            with coordinators_at(self._place.with_cpus(self._shares[name])):
                found = self._config.configure(
                    {name: dataset}, world_size=len(workers), worker_handles=None, worker_node_ids=nodes
                )
            for shard, of_rank in zip(shards, found, strict=True):
                shard[name] = of_rank[name]
            first: Any = found[0][name]
            if isinstance(first, StreamSplitDataIterator):
                self._coordinators.append(first._coord_actor)
        return {"dataset_shard_provider": [Shards(each) for each in shards]}

    def after_worker_group_start(self, worker_group: Any) -> None:
        worker_group.execute(_set_context, self._context)

    def after_worker_group_shutdown(self, worker_group_context: Any) -> None:
        self.close()

    def after_worker_group_abort(self, worker_group_context: Any) -> None:
        self.close()

    def close(self) -> None:
        """End the coordinators of the splits, and with them what reads for them."""
        ending, self._coordinators = self._coordinators, []
        for actor in ending:
            ray.kill(actor)
        if ending:
            with suppress(Exception):
                ray.wait(
                    [actor.get_dataset_tag.remote(0) for actor in ending],
                    num_returns=len(ending),
                    timeout=GONE_S,
                )


@dataclass(frozen=True, slots=True)
class Shards:
    """The data sets of one worker: Ray Train's `DatasetShardProvider`."""

    iterators: dict[str, Any]

    def get_dataset_shard(self, dataset_info: Any) -> Any:
        """Raises: KeyError: There is none of this name."""
        name = dataset_info.dataset_name
        if name not in self.iterators:
            there = ", ".join(map(repr, self.iterators))
            raise KeyError(f"the trainer has no data set {name!r} in its datasets: there are {there}")
        return self.iterators[name]


def cpus_needed(dataset: Dataset) -> float:
    """CPUs without which reading it would wait for ever: of the pools' first actors, and of one task beside.

    Raises: DataRefused: It asks for GPUs.
    """
    pools, task = 0.0, 0.0
    for op in get_execution_plan(dataset._logical_plan)[0].dag.post_order_iter():
        is_pool = isinstance(op, ActorPoolMapOperator)
        least = op.min_max_resource_requirements()[0] if is_pool else op.incremental_resource_usage()
        if least.gpu:
            raise DataRefused(
                "trainer",
                f"the data set's {op.name} asks for GPUs, and Ray Data has CPUs in a trial",
                "leave num_gpus out, or do that part in the training function",
            )
        if is_pool:
            pools += least.cpu or 0
        else:
            task = max(task, least.cpu or 0, float(isinstance(op, AllToAllOperator)))
    return max(1.0, pools + task)


def _set_context(context: DataContext) -> None:
    DataContext._set_current(context)
