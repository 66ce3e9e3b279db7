"""Builds a Ray Train V2 trainer from a spec."""

from __future__ import annotations

from typing import Any

import ray.train
from ray import cloudpickle
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from raysweep.programs.runner import runnable
from raysweep.specs import Scaling, TrainSpec, load_trainable
from raysweep.training.datasets import make_data_config, make_datasets
from raysweep.training.frameworks import trainer_maker
from raysweep.training.worker_loop import TrainLoop
from raysweep.worker.setup import WorkerSetup

CHECKPOINTS_KEPT = 2
DEFAULT_RESIZE_INTERVAL_S = 10.0


def make_trainer(
    spec: TrainSpec, run_id: str, storage_path: str, *, above: int, setup: WorkerSetup | None = None
) -> DataParallelTrainer:
    """The trainer that the spec asks for, with its data sets; no worker is started.

    Args:
        spec: The run.
        run_id: The folder under `storage_path` that Ray Train works in.
        storage_path: Absolute, or a URI that pyarrow reads.
        above: The numbers of its checkpoints are above this one.
        setup: Of the sweep's worker; None: output of the workers is not kept.

    Raises:
        SpecError: A data set cannot be made, or the trainer that the spec names.
    """
    payload = _pickled(load_trainable(runnable(spec)))
    loop = TrainLoop(
        run_id=run_id,
        storage_path=storage_path,
        payload=payload,
        warm_start=spec.warm_start_checkpoint,
        schedule=spec.schedule,
        pinned_cpus=spec.scaling.resources.cpu if spec.scaling.pin_cpus else 0.0,
        above=above,
        setup=setup,
    )
    arguments: dict[str, Any] = {
        "train_loop_config": dict(spec.config),
        "scaling_config": ray.train.ScalingConfig(**_scaling(spec.scaling)),
        "run_config": ray.train.RunConfig(
            name=run_id,
            storage_path=storage_path,
            failure_config=ray.train.FailureConfig(),
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=CHECKPOINTS_KEPT),
            **_quiet(),
        ),
    }
    if spec.datasets:
        arguments |= {"datasets": make_datasets(spec), "dataset_config": make_data_config(spec)}
    return trainer_maker(spec.framework)(loop, **arguments)


def _scaling(scaling: Scaling) -> dict[str, Any]:
    return {
        **_size(scaling),
        "use_gpu": scaling.resources.gpu > 0,
        "resources_per_worker": scaling.worker_bundle(),
        "placement_strategy": scaling.placement_strategy,
        "label_selector": dict(scaling.label_selector) or None,
    }


def _size(scaling: Scaling) -> dict[str, Any]:
    if scaling.min_workers is None:
        return {"num_workers": scaling.max_workers}
    interval_s = DEFAULT_RESIZE_INTERVAL_S if scaling.resize_interval_s is None else scaling.resize_interval_s
    bounds = (scaling.min_workers, scaling.max_workers)
    return {"num_workers": bounds, "elastic_resize_monitor_interval_s": interval_s}


def _pickled(trainable: Any) -> bytes:
    data: bytes = cloudpickle.dumps(trainable)  # type: ignore[no-untyped-call]
    return data


def _quiet() -> dict[str, Any]:
    """Ray Train's own lines go to its system log files only (older versions cannot be told)."""
    config = getattr(ray.train, "LoggingConfig", None)
    return {"logging_config": config(log_level="CRITICAL")} if config else {}
