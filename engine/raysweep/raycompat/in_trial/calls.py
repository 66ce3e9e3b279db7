"""The session behind `ray.tune.report`, `ray.train.report` and their siblings, put in place for a trial.

Ray Tune's calls look for a session in one module, those of Ray Train V2 for its utilities in another. Neither
module is imported here: a trial that does without Ray Tune starts without it, which takes seconds to import.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from raysweep.raycompat.in_trial.trialcalls import TrialCalls

TUNE_SESSION: Final = "ray.train._internal.session"
"""The module in which Ray Tune's calls look for their session."""
TRAIN_WORKER: Final = "ray.train.v2._internal.execution.train_fn_utils"
"""The module in which the calls of Ray Train V2 look for what they do."""
TRAINER: Final = "ray.train.v2.api.data_parallel_trainer"
"""The module of the trainer that all others of Ray Train V2 inherit `fit` from."""
TUNE_CALLBACK: Final = "ray.tune.integration.ray_train"
"""The module of the callback that hands the reports of a Ray Train run on to Ray Tune."""
DATA: Final = "ray.data"
"""The package of Ray Data."""
_their_own: Final[dict[tuple[type, str], Any]] = {}


def enter_tune(module: ModuleType, calls: TrialCalls) -> None:
    """From now on `ray.tune.report` and its siblings go to this trial; `module`: `TUNE_SESSION`."""
    module._session = TuneSession(calls)  # type: ignore[attr-defined]


def leave_tune(module: ModuleType) -> None:
    """No trial runs here any more."""
    if isinstance(getattr(module, "_session", None), TuneSession):
        module._session = None  # type: ignore[attr-defined]


def enter_train(module: ModuleType, calls: TrialCalls) -> None:
    """From now on `ray.train.report` and its siblings go to this trial; `module`: `TRAIN_WORKER`."""
    from raysweep.raycompat.in_trial.trainworker import TrainWorker

    module.set_train_fn_utils(TrainWorker(calls))


def leave_train(module: ModuleType) -> None:
    """No trial runs here any more."""
    from raysweep.raycompat.in_trial.trainworker import TrainWorker

    if isinstance(module._train_fn_utils, TrainWorker):
        module.set_train_fn_utils(None)


def enter_trainer(module: ModuleType, fit: Callable[[Any], Any]) -> None:
    """From now on `trainer.fit()` is `fit(trainer)`; `module`: `TRAINER`."""
    _replace(module.DataParallelTrainer, "fit", lambda trainer: fit(trainer))


def leave_trainer(module: ModuleType) -> None:
    """No trial runs here any more."""
    _put_back(module.DataParallelTrainer)


def enter_tune_callback(module: ModuleType) -> None:
    """From now on `TuneReportCallback` does nothing: what it would hand on is; `module`: `TUNE_CALLBACK`."""
    _replace(module.TuneReportCallback, "__init__", lambda callback: None)
    _replace(
        module.TuneReportCallback, "after_report", lambda callback, run_context, metrics, checkpoint: None
    )


def leave_tune_callback(module: ModuleType) -> None:
    """No trial runs here any more."""
    _put_back(module.TuneReportCallback)


def enter_data(cpus: int, bundle: int) -> None:
    """From now on Ray Data, which is imported, has so many CPUs: this bundle of the process's group."""
    import ray

    from raysweep.raycompat.in_trial import dataplace

    group: Any = ray.util.get_current_placement_group() if ray.is_initialized() else None
    if cpus and group is not None:
        dataplace.enter_data(dataplace.DataPlace(group=group, bundle=bundle, cpus=cpus))


def leave_data() -> None:
    """No trial runs here any more."""
    from raysweep.raycompat.in_trial import dataplace

    dataplace.leave_data()


def _replace(cls: type, name: str, ours: Callable[..., Any]) -> None:
    _their_own.setdefault((cls, name), getattr(cls, name))
    setattr(cls, name, ours)


def _put_back(cls: type) -> None:
    for owner, name in [each for each in _their_own if each[0] is cls]:
        setattr(owner, name, _their_own.pop((owner, name)))


class TuneSession:
    """Stands for Ray's `_TrainSession` in `ray.tune.report`, `get_checkpoint` and `get_context`.

    It has a rank, so that Ray does not refuse `ray.train.report` as a call that Tune's functions may not use.
    """

    accelerator: Any = None
    dataset_shard: Any = None
    metadata: Any = None

    def __init__(self, calls: TrialCalls) -> None:
        self._calls = calls

    def report(self, metrics: dict[str, Any], checkpoint: Any = None) -> None:
        self._calls.report(metrics, checkpoint)

    @property
    def loaded_checkpoint(self) -> Any:
        return self._calls.get_checkpoint()

    @property
    def experiment_name(self) -> str:
        return self._calls.experiment

    @property
    def trial_name(self) -> str:
        return f"{self._calls.experiment}_{self._calls.trial_id}"

    @property
    def trial_id(self) -> str:
        return self._calls.trial_id

    @property
    def run_id(self) -> str:
        return self._calls.trial_id

    @property
    def trial_dir(self) -> str:
        return str(self._calls.folder())

    @property
    def trial_resources(self) -> Any:
        from ray.tune import PlacementGroupFactory

        resources = self._calls.resources
        return PlacementGroupFactory([resources]) if resources else None

    @property
    def world_rank(self) -> int:
        return self._calls.rank

    @property
    def world_size(self) -> int:
        return self._calls.world_size
