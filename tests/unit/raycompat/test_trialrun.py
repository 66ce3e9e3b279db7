"""Ray Train V2's insides, as raysweep.raycompat.in_trial takes them: what has moved is said by name."""

from __future__ import annotations

import importlib
import inspect
from types import SimpleNamespace
from typing import Any

import pytest
import ray.train
from ray.exceptions import RayActorError
from ray.train.v2._internal.execution.callback import ReportCallback
from ray.train.v2._internal.execution.checkpoint.checkpoint_manager import CheckpointManager
from ray.train.v2._internal.execution.context import TrainRunContext
from ray.train.v2._internal.execution.failure_handling import FailureDecision
from ray.train.v2._internal.execution.storage import StorageContext
from ray.train.v2._internal.execution.worker_group import RayTrainWorker, WorkerGroup
from ray.train.v2._internal.execution.worker_group.state import WorkerGroupState
from ray.train.v2._internal.execution.worker_group.worker import ActorMetadata, Worker
from ray.train.v2.api.config import CheckpointConfig, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from ray.train.v2.api.exceptions import WorkerGroupError
from ray.tune.integration import ray_train

from raysweep.raycompat.in_trial import calls, trialrun
from tests.unit.raycompat.moved import check_uses, parameters, since

OVERRIDDEN = [
    (trialrun._Workers, "_create_placement_group"),
    (trialrun._Workers, "_create_workers"),
    (trialrun.AnnouncedNodes, "make_decision"),
    (trialrun._Lent, "wait"),
    (trialrun._Lent, "shutdown"),
    (trialrun.Reports, "after_report"),
    (trialrun.Reports, "after_worker_group_start"),
]


@pytest.mark.parametrize(("cls", "name"), OVERRIDDEN, ids=lambda each: getattr(each, "__name__", each))
def test_what_is_overridden_is_there_and_takes_the_same(cls: type, name: str) -> None:
    theirs = [getattr(base, name) for base in cls.__mro__[1:] if name in vars(base)]
    assert theirs, f"Ray's {cls.__mro__[1].__name__} has no {name} any more"
    assert parameters(getattr(cls, name)) == parameters(theirs[-1] if cls is trialrun._Workers else theirs[0])


def test_fit_is_one_call_that_all_trainers_inherit() -> None:
    assert importlib.import_module(calls.TRAINER).DataParallelTrainer is DataParallelTrainer
    assert list(inspect.signature(DataParallelTrainer.fit).parameters) == ["self"]
    check_uses(DataParallelTrainer, "self.train_run_context = ", "self._create_default_callbacks()")
    check_uses(DataParallelTrainer, "raise result.error", "create_failure_policy(self.run_config.failure")
    check_uses(DataParallelTrainer._create_default_callbacks, *trialrun._LEFT_OUT[:2])
    check_uses(DataParallelTrainer._create_default_callbacks, "train_run_context=self.train_run_context")


def test_torchs_trainer_inherits_it() -> None:
    pytest.importorskip("torch")
    from ray.train.torch import TorchTrainer

    assert TorchTrainer.fit is DataParallelTrainer.fit


def test_the_callback_for_ray_tune_is_where_it_is_replaced() -> None:
    assert importlib.import_module(calls.TUNE_CALLBACK) is ray_train
    assert {"__init__", "after_report"} <= set(vars(ray_train.TuneReportCallback))


def test_a_runs_config_is_replaced_with_another_storage() -> None:
    given = RunConfig(name="a", checkpoint_config=CheckpointConfig(num_to_keep=None))
    assert given.checkpoint_config is not None
    assert given.checkpoint_config.num_to_keep is None
    storage = inspect.getattr_static(RunConfig, "storage_context").func
    check_uses(storage, "experiment_dir_name=self.name", "storage_path=self.storage_path")
    assert "run_config" in parameters(TrainRunContext)
    check_uses(
        StorageContext.persist_current_checkpoint, "build_checkpoint_path_from_name(checkpoint_dir_name)"
    )
    assert {"num_workers", "use_tpu", "label_selector"} <= set(parameters(ScalingConfig))


def test_workers_begin_from_the_newest_checkpoint_that_the_manager_has() -> None:
    check_uses(CheckpointManager, "self._latest_checkpoint_result", "def before_init_train_context")
    check_uses(CheckpointManager.before_init_train_context, "latest_checkpoint_result.checkpoint")
    check_uses(CheckpointManager, "def _write_state_to_storage(self)")


def test_a_group_that_is_killed_is_its_workers_and_one_actor_more() -> None:
    check_uses(WorkerGroup, "def get_workers", "def abort", "def has_started")
    check_uses(WorkerGroup.abort, "self._worker_group_state.shutdown()", "after_worker_group_abort(")
    check_uses(WorkerGroupState, "_shutdown_workers(self.workers)", "_shutdown_sync_actor(self.sync_actor)")
    assert issubclass(trialrun.Reports, ReportCallback)


@since(2, 58)
def test_a_node_that_goes_before_its_announced_time_costs_no_failure_but_a_preemption() -> None:
    died = WorkerGroupError("died", {1: RayActorError()})
    policy = trialrun.AnnouncedNodes(ray.train.FailureConfig(max_failures=0))
    assert policy.make_decision(died) is FailureDecision.RAISE
    policy.announced = lambda: frozenset({1})
    assert [policy.make_decision(died) for _ in range(3)] == [FailureDecision.RETRY] * 3
    raised = WorkerGroupError("raised", {1: ValueError()})
    assert policy.make_decision(raised) is FailureDecision.RAISE, "what the user raised is a failure anywhere"
    strict = trialrun.AnnouncedNodes(ray.train.FailureConfig(max_failures=9, max_preemption_failures=1))
    strict.announced = lambda: frozenset({1})
    assert strict.make_decision(died) is FailureDecision.RETRY
    assert strict.make_decision(died) is FailureDecision.RAISE, "the user's own limit stands"


class Told:
    """A worker's actor that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.mark_preempt = SimpleNamespace(remote=self.told.append)


@since(2, 58)
def test_all_workers_of_a_group_are_asked_for_a_checkpoint_once() -> None:
    check_uses(RayTrainWorker, "def mark_preempt(self, info: PreemptionInfo)")
    controller = object.__new__(trialrun._Controller)
    groups = []
    for _ in range(2):
        workers = [SimpleNamespace(actor=Told()) for _ in range(2)]
        groups.append(SimpleNamespace(has_started=lambda: True, get_workers=lambda found=workers: found))
    controller._worker_group = None
    controller.ask_for_checkpoint()
    for group in groups:
        controller._worker_group = group
        controller.ask_for_checkpoint()
        controller.ask_for_checkpoint()
    told = [worker.actor.told for group in groups for worker in group.get_workers()]
    assert [len(each) for each in told] == [1, 1, 1, 1]
    assert told[0][0].preempted_ranks == [], "no worker's death is excused by it"


class PreemptionCallback:
    """Keeps the nodes by rank that it is to look for."""

    def __init__(self) -> None:
        self.watched: list[dict[int, str]] = []

    def after_worker_group_start(self, group: Any) -> None:
        ranks = enumerate(group.get_workers())
        self.watched.append({rank: worker.metadata.node_id for rank, worker in ranks})


@since(2, 58)
def test_of_the_trials_own_node_the_sweep_asks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.train.v2._internal.callbacks import preemption_callback

    uses = ("metadata.node_id", "worker_group.get_workers()", "after_worker_group_start")
    check_uses(preemption_callback.PreemptionCallback, *uses)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "here"))
    controller, theirs = object.__new__(trialrun._Controller), PreemptionCallback()
    controller._worker_group_callbacks_to_propagate = [SimpleNamespace(), theirs]
    controller.watch_other_nodes()

    def begin(*nodes: str) -> None:
        workers = [Worker(Told(), ActorMetadata("h", node, "ip", 1, {}), {}) for node in nodes]
        theirs.after_worker_group_start(SimpleNamespace(get_workers=lambda: workers))

    begin("here", "here")
    assert theirs.watched == [], "no process looks for what nobody is told"
    begin("here", "there")
    assert theirs.watched == [{0: "", 1: "there"}], "all ranks are told, of other nodes alone"
