"""From a spec to a Ray Train V2 trainer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ray
import ray.train
from ray import cloudpickle
from ray.train.backend import Backend, BackendConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from raysweep.raycompat.lightgbm import find_places, set_network
from raysweep.spec import Scaling, TrainSpec, load_trainable
from raysweep.training.loop import TrainLoop

CHECKPOINTS_KEPT = 2
DEFAULT_RESIZE_INTERVAL_S = 10.0


def make_trainer(spec: TrainSpec, run_id: str, storage_path: str, attempt: int) -> DataParallelTrainer:
    """The trainer that the spec asks for; nothing is started.

    Args:
        spec: The run.
        run_id: The folder under `storage_path` that Ray Train works in.
        storage_path: Absolute, or a URI that pyarrow reads.
        attempt: The number of the claim that it runs under.
    """
    payload = _pickled(load_trainable(spec.trainable))
    loop = TrainLoop(
        run_id=run_id,
        storage_path=storage_path,
        payload=payload,
        warm_start=spec.warm_start_checkpoint,
        attempt=attempt,
        schedule=spec.schedule,
        pinned_cpus=spec.scaling.worker_bundle()["CPU"] if spec.scaling.pin_cpus else 0.0,
    )
    arguments: dict[str, Any] = {
        "train_loop_config": dict(spec.config),
        "scaling_config": ray.train.ScalingConfig(**_scaling(spec.scaling)),
        "run_config": ray.train.RunConfig(
            name=run_id,
            storage_path=storage_path,
            failure_config=ray.train.FailureConfig(max_failures=spec.max_failures),
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=CHECKPOINTS_KEPT),
            **_quiet(),
        ),
    }
    if spec.framework == "torch":
        from ray.train.v2.torch.torch_trainer import TorchTrainer

        return TorchTrainer(loop, **arguments)
    if spec.framework == "lightgbm":
        arguments["backend_config"] = LightGBMNetwork()
    return DataParallelTrainer(loop, **arguments)


def _scaling(scaling: Scaling) -> dict[str, Any]:
    return {
        **_size(scaling),
        "use_gpu": scaling.use_gpu,
        "resources_per_worker": scaling.worker_bundle(),
        "placement_strategy": scaling.placement_strategy,
        "label_selector": dict(scaling.label_selector) or None,
    }


def _size(scaling: Scaling) -> dict[str, Any]:
    if scaling.min_workers is None:
        return {"num_workers": scaling.num_workers}
    interval_s = DEFAULT_RESIZE_INTERVAL_S if scaling.resize_interval_s is None else scaling.resize_interval_s
    bounds = (scaling.min_workers, scaling.num_workers)
    return {"num_workers": bounds, "elastic_resize_monitor_interval_s": interval_s}


def _pickled(trainable: Any) -> bytes:
    data: bytes = cloudpickle.dumps(trainable)  # type: ignore[no-untyped-call]
    return data


def _quiet() -> dict[str, Any]:
    """Ray Train's own lines go to its system log files only (older versions cannot be told)."""
    config = getattr(ray.train, "LoggingConfig", None)
    return {"logging_config": config(log_level="CRITICAL")} if config else {}


@dataclass
class LightGBMNetwork(BackendConfig):
    """What `ray.train.lightgbm.LightGBMTrainer` sets up: `get_network_params()` works in each worker.

    The same calls, but only the workers import LightGBM (and with it scikit-learn): three to five seconds
    that the calling process does not spend.
    """

    @property
    def backend_cls(self) -> type[Backend]:
        return _LightGBMNetworkBackend


class _LightGBMNetworkBackend(Backend):
    def on_training_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
        places = find_places(worker_group)
        machines = ",".join(_address(host, port) for host, port in places)
        ray.get(
            [
                worker_group.execute_single_async(rank, set_network, len(places), port, machines)
                for rank, (_, port) in enumerate(places)
            ]
        )


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
