"""Sets up the workers of a training for the framework in its spec.

The calling process imports as little of a framework as possible: nothing of LightGBM and TensorFlow, and
of XGBoost only the tracker where the workers meet, which Ray Train runs in that process.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

import ray
from ray.train.backend import Backend, BackendConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from raysweep.documents.code import user_code
from raysweep.documents.code.trainable import load_function
from raysweep.errors import SpecError, one_line
from raysweep.raycompat.frameworks import find_places, set_network

MakeTrainer = Callable[..., DataParallelTrainer]
_FIELD: Final = "framework"
_FIX: Final = (
    "name a class of DataParallelTrainer, or a function(train_loop, **arguments) that hands the arguments on"
)


def trainer_maker(framework: str) -> MakeTrainer:
    """A function that makes the trainer, called with the train loop and the trainer's keyword arguments.

    Raises:
        SpecError: The framework is not installed here, or what is named cannot be imported.
    """
    if ":" in framework:
        return _named(framework)
    return _KNOWN[framework]()


def _named(reference: str) -> MakeTrainer:
    make = load_function(reference, _FIELD)

    def checked(loop: Any, **arguments: Any) -> DataParallelTrainer:
        try:
            made = user_code.call(make, loop, **arguments)
        except Exception as error:
            what = one_line(f"{type(error).__name__}: {error}", 300)
            raise SpecError(_FIELD, f"{reference!r} made no trainer: {what}", _FIX) from error
        if not isinstance(made, DataParallelTrainer):
            raise SpecError(
                _FIELD, f"{reference!r} made a {type(made).__name__}, no trainer of Ray Train V2", _FIX
            )
        if made.validation_config is not None:
            fix = "report the validation's metrics from the training function"
            raise SpecError(_FIELD, f"{reference!r} has a validation_config, which is not run here", fix)
        if made.run_config is not arguments["run_config"]:
            raise SpecError(
                _FIELD, f"{reference!r} has a run_config of its own", "hand run_config on as it is"
            )
        return made

    return checked


def _torch() -> MakeTrainer:
    from ray.train.v2.torch.torch_trainer import TorchTrainer

    return TorchTrainer


def _lightgbm() -> MakeTrainer:
    return lambda loop, **arguments: DataParallelTrainer(loop, backend_config=LightGBMNetwork(), **arguments)


def _xgboost() -> MakeTrainer:
    if find_spec("xgboost") is None:
        fix = "install 'raysweep[xgboost]' (without CUDA), or xgboost, where this runs and on the nodes"
        raise SpecError(_FIELD, "'xgboost' is not installed here", fix)
    from ray.train.xgboost import XGBoostConfig

    return lambda loop, **arguments: DataParallelTrainer(loop, backend_config=XGBoostConfig(), **arguments)


def _tensorflow() -> MakeTrainer:
    return lambda loop, **arguments: DataParallelTrainer(
        loop, backend_config=TensorFlowCluster(), **arguments
    )


_KNOWN: Final[dict[str, Callable[[], MakeTrainer]]] = {
    "data_parallel": lambda: DataParallelTrainer,
    "torch": _torch,
    "lightgbm": _lightgbm,
    "xgboost": _xgboost,
    "tensorflow": _tensorflow,
}


@dataclass
class LightGBMNetwork(BackendConfig):
    """The set-up of `ray.train.lightgbm.LightGBMTrainer`: `get_network_params()` works in each worker.

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


@dataclass
class TensorFlowCluster(BackendConfig):
    """The set-up of `ray.train.tensorflow.TensorflowTrainer`: TF_CONFIG, for strategies of several workers.

    Ray's own imports TensorFlow in the calling process, and makes `tf.keras` the older Keras; as that is a
    package of its own, it is left to who has it: `TF_USE_LEGACY_KERAS=1`.
    """

    @property
    def backend_cls(self) -> type[Backend]:
        return _TensorFlowBackend


class _TensorFlowBackend(Backend):
    def on_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
        workers = [_address(host, port) for host, port in find_places(worker_group)]
        ray.get(
            [
                worker_group.execute_single_async(rank, _set_cluster, workers, rank)
                for rank in range(len(workers))
            ]
        )


def _set_cluster(workers: list[str], rank: int) -> None:
    task = {"type": "worker", "index": rank}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
