"""Ray Train V2's insides, as raysweep.raycompat.train takes them: what has moved is said by name."""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import ActorUnschedulableError, RayActorError, RuntimeEnvSetupError
from ray.train.v2._internal import exceptions
from ray.train.v2._internal.execution.checkpoint.checkpoint_manager import CheckpointManager
from ray.train.v2._internal.execution.context import StorageContext, TrainContext
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2._internal.execution.train_fn_utils import DistributedTrainFnUtils
from ray.train.v2._internal.execution.worker_group import WorkerGroup
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from ray.train.v2.api.exceptions import ControllerError, WorkerGroupError

from raysweep.raycompat import TRAIN_WORKER_MODULE, storages, train
from raysweep.raycompat.in_trial import trainstore
from tests.unit.raycompat.moved import check_uses, parameters, since

SUBCLASSES = (
    train.Decision,
    train.Listener,
    train.LocalController,
    train.FixedSize,
    train._Room,
    train.LocalWorkers,
)
TELL = "worker.actor.init_train_context.remote"
OURS = {
    "has_checkpoint", "close", "stop", "watch_no_nodes", "follow",
    "newest_checkpoint", "result_so_far", "pause", "ask_for_checkpoint", "begin_from",
}  # fmt: skip
OVERRIDDEN = [
    (cls, name)
    for cls in SUBCLASSES
    for name, value in vars(cls).items()
    if inspect.isfunction(inspect.unwrap(getattr(value, "__func__", value)))
    and not name.startswith("__")
    and name not in OURS
]


@pytest.mark.parametrize(("cls", "name"), OVERRIDDEN, ids=lambda each: getattr(each, "__name__", each))
def test_what_is_overridden_is_there_and_takes_the_same(cls: type, name: str) -> None:
    theirs = next((getattr(base, name) for base in cls.__mro__[1:] if name in vars(base)), None)
    assert theirs is not None, f"Ray's {cls.__mro__[1].__name__} has no {name} any more"
    assert parameters(getattr(cls, name)) == parameters(theirs)


def test_the_overridden_parts_are_used() -> None:
    assert len(OVERRIDDEN) > 10
    check_uses(TrainController, "self._step()", "self._poll_workers()", "self.worker_group_cls.create(")
    check_uses(TrainController, "self._health_check_interval_s", "self._worker_group_callbacks_to_propagate")
    check_uses(TrainController, "self._checkpoint_manager = ", "def get_worker_group", "def get_result")
    check_uses(TrainController, "def _build_result(self)", "def _shutdown_worker_group(self)")
    check_uses(
        WorkerGroup, "worker_group._start()", "self._create_placement_group(", "self._init_train_context_on_"
    )
    check_uses(WorkerGroup, "self._get_worker_runtime_env(", "def has_started", "self._train_run_context = ")
    check_uses(WorkerGroup, "self._storage_context = ", "self._worker_callbacks_to_propagate = ")


def test_the_list_of_checkpoints_is_written_by_one_call_which_writes_nothing_here() -> None:
    check_uses(CheckpointManager, "latest_checkpoint_result")
    writing = CheckpointManager._save_state_and_delete_old_checkpoints
    check_uses(writing, "self._write_state_to_storage()", "delete_fs_path(")


def keywords(function: Any, call: str) -> dict[str | None, str]:
    """The keyword arguments that a function's source gives to a call."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    (found,) = [
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == call
    ]
    return {keyword.arg: ast.unparse(keyword.value) for keyword in found.keywords}


def test_workers_are_told_what_ray_tells_them_but_for_the_controller() -> None:
    ours = keywords(train.LocalWorkers._init_train_context_on_workers, TELL)
    theirs = keywords(WorkerGroup._init_train_context_on_workers, TELL)
    assert set(ours) == set(theirs)
    changed = {name for name in ours if name is not None and ours[name] != theirs[name]}
    assert changed == {"controller_actor"}


def test_the_controller_is_made_as_ray_makes_it() -> None:
    theirs = set(parameters(TrainController)) - {"validation_config"}
    assert set(keywords(train.make_controller, "made_by")) == theirs


def test_the_callbacks_are_rays_but_for_its_helpers() -> None:
    """NCCLRASCallback, since Ray 2.60, is experimental, and off by default."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(DataParallelTrainer._create_default_callbacks)))
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    made = {function.id for function in called if isinstance(function, ast.Name)}
    ours = inspect.getsource(train.make_controller) + inspect.getsource(train._datasets)
    assert {name for name in made if "allback" in name and name not in ours} - {"NCCLRASCallback"} == {
        "PlacementGroupCleanerCallback",  # a group that the driver made goes with the driver
        "StateManagerCallback",  # for Ray's dashboard, off by default
        "UserCallbackHandler",  # the trainer's run_config has none
        "WorkingDirectorySetupCallback",  # workers stay in their own working directory
    }


@since(2, 58)
def test_the_watcher_of_nodes_has_its_name() -> None:
    check_uses(TrainController, "PreemptionCallback(")


def test_the_trainer_has_what_the_controller_is_given() -> None:
    for name in ("train_run_context", "backend_config", "run_config"):
        check_uses(DataParallelTrainer.__init__, f"self.{name} = ")
    assert parameters(DataParallelTrainer._get_train_func) == ["self"]


def test_the_workers_module_is_where_the_preload_finds_it() -> None:
    worker = importlib.import_module(TRAIN_WORKER_MODULE).RayTrainWorker
    told = {name for name in keywords(train.LocalWorkers._init_train_context_on_workers, TELL) if name}
    assert told <= set(parameters(worker.init_train_context))


def user_error() -> exceptions.UserExceptionWithTraceback:
    return exceptions.UserExceptionWithTraceback(ValueError("bad"), "Traceback\nValueError: bad\n")


def test_errors_say_what_failed() -> None:
    raised = train.user_exception(user_error())
    assert raised is not None
    assert (type(raised[0]), raised[1]) == (ValueError, "Traceback\nValueError: bad")
    assert train.user_exception(ValueError()) is None

    death = RayActorError()
    assert train.worker_death(death) is death
    sick = exceptions.WorkerHealthCheckFailedError("dead", death)
    assert train.worker_death(sick) is death
    assert train.worker_death(ValueError()) is None

    cause = ValueError("in the controller")
    assert train.cause_of(ControllerError(cause)) is cause
    assert train.cause_of(cause) is cause


def test_what_may_pass() -> None:
    group = WorkerGroupError("two died", {0: RayActorError()})
    assert train.is_of_workers(group)
    assert train.may_pass(group)
    assert not train.may_pass(ValueError())


LOST_NODE = """The actor died unexpectedly before finishing this task.
\tclass_name: RayTrainWorker
\tactor_id: 67450d6e83f29080da35220701000000
\tip: 192.0.2.2
The actor died because its node has died. Node Id: e16b9a
\tthe actor's node was terminated unexpectedly: dashboard_agent failed and raylet fate-shares with it.
The actor never ran - it was cancelled before it started running."""
BAD_INIT = """The actor died because of an error raised in its creation task, ray::RayTrainWorker.__init__()
  File "worker.py", line 1, in __init__
OSError: no device"""


def test_a_start_that_fails_has_a_reason_in_one_line() -> None:
    start = exceptions.WorkerGroupStartupFailedError("One of the worker actors failed to initialize")
    assert train.failed_start(start) is start
    assert not train.is_of_workers(start)
    start.__cause__ = RayActorError(error_msg=LOST_NODE)
    reason = train.failed_start(start)
    assert reason is start.__cause__
    assert train.start_problem(reason) == (
        "The actor died because its node has died. Node Id: e16b9a the actor's node was terminated "
        "unexpectedly: dashboard_agent failed and raylet fate-shares with it. "
        "The actor never ran - it was cancelled before it started running"
    )
    raised = RayActorError(error_msg=BAD_INIT, actor_init_failed=True)
    assert train.start_problem(raised) == "OSError: no device"
    assert train.start_problem(RayActorError(error_msg="gone")) == "gone"
    assert train.start_problem(ValueError()) == "ValueError"


@pytest.mark.parametrize("error", [ActorUnschedulableError("no place"), RuntimeEnvSetupError("no network")])
def test_an_actor_that_ray_cannot_place_or_prepare_has_not_started(error: Exception) -> None:
    assert train.failed_start(error) is error
    assert not train.may_pass(error)


@pytest.mark.parametrize(
    "error", [RayActorError(), ValueError(), WorkerGroupError("died", {0: RayActorError()})]
)
def test_what_fails_after_the_launch_is_no_failed_start(error: Exception) -> None:
    assert train.failed_start(error) is None


def test_ray_says_so_where_workers_fail_to_start() -> None:
    check_uses(WorkerGroup._create_workers, "WorkerGroupStartupFailedError(error_msg) from actor_error")
    source = inspect.getsource(WorkerGroup._start_impl)
    assert source.index("WorkerGroupStartupFailedError") < source.index("actor.run_train_fn.remote")
    assert source.index("actor.run_train_fn.remote") < source.index(".after_worker_group_training_start(")


def test_a_node_that_is_taken_away_is_no_failure() -> None:
    assert not train.is_preemption(WorkerGroupError("died", {0: RayActorError()}))
    lost = RayActorError()
    lost._preempted = True
    assert lost.preempted
    sick = exceptions.WorkerHealthCheckFailedError("dead", lost)
    assert train.is_preemption(WorkerGroupError("died", {1: sick}))


def test_a_node_that_goes_before_its_time_is_no_failure_either() -> None:
    died = WorkerGroupError("died", {0: ValueError(), 1: RayActorError()})
    assert train.is_preemption(died, frozenset({1}))
    assert not train.is_preemption(died, frozenset({2}))
    assert not train.is_preemption(died, frozenset({0})), "what the user raised is a failure anywhere"


def test_what_was_announced_is_retried_without_being_asked_for() -> None:
    from ray.train import FailureConfig
    from ray.train.v2._internal.execution.failure_handling import FailureDecision

    decision = train.Decision(FailureConfig(), lambda error: False)
    error = ControllerError(WorkerGroupError("died", {1: RayActorError()}))
    assert decision.make_decision(error) is FailureDecision.RAISE
    decision.announced = lambda: frozenset({1})
    assert decision.make_decision(error) is FailureDecision.RETRY


@pytest.mark.parametrize("is_retried", [True, False])
def test_the_decision_is_handed_on(is_retried: bool) -> None:
    from ray.train import FailureConfig
    from ray.train.v2._internal.execution.failure_handling import FailureDecision

    asked: list[BaseException] = []

    def decide(error: BaseException) -> bool:
        asked.append(error)
        return is_retried

    cause = ValueError()
    decision = train.Decision(FailureConfig(), decide).make_decision(ControllerError(cause))
    assert decision is (FailureDecision.RETRY if is_retried else FailureDecision.RAISE)
    assert asked == [cause]


def test_of_several_errors_the_users_own_is_heard() -> None:
    from ray.train.v2._internal.execution.worker_group import WorkerGroupPollStatus, WorkerStatus

    heard: list[BaseException] = []
    listener = train.Listener(lambda *_: None, heard.append)
    own, death = user_error(), RayActorError()
    statuses = {
        0: WorkerStatus(running=True, error=None),
        1: WorkerStatus(running=False, error=death),
        2: WorkerStatus(running=False, error=own),
    }
    for chosen in ((0,), (0, 1), (0, 1, 2)):
        listener.after_worker_group_poll_status(WorkerGroupPollStatus({n: statuses[n] for n in chosen}))
    assert heard == [death, own]


def test_what_a_workers_checkpoints_go_through_is_there_and_is_used() -> None:
    """`raycompat.in_trial.trainstore` changes these in a worker."""
    report = inspect.getsource(TrainContext.report)
    check_uses(TrainContext._upload_checkpoint, "self.storage_context.persist_current_checkpoint(")
    assert "checkpoint, checkpoint_dir_name\n" in inspect.getsource(TrainContext._upload_checkpoint)
    check_uses(TrainContext._sync_checkpoint_dir_name_across_ranks, "make_default_checkpoint_dir_name()")
    assert report.count("self._upload_checkpoint(") == 2, "waiting and in the background"
    check_uses(DistributedTrainFnUtils.get_checkpoint, "get_internal_train_context().get_checkpoint()")
    assert parameters(TrainContext.get_checkpoint) == ["self"]
    for name in ("build_checkpoint_path_from_name", "extract_checkpoint_dir_name_from_path"):
        assert hasattr(StorageContext, name)
    check_uses(StorageContext, "def _check_validation_file(self)", "def experiment_fs_path(self)")


@since(2, 58)
def test_a_checkpoint_that_is_stored_already_is_not_uploaded_again() -> None:
    check_uses(TrainContext.report, "is_managed_checkpoint(")


def test_a_checkpoint_is_restored_once_its_path_is_asked_for(tmp_path: Path) -> None:
    restored: list[str] = []

    def restore() -> str:
        restored.append("now")
        return str(tmp_path)

    (tmp_path / "w").write_text("1")
    checkpoint = trainstore.RestoredCheckpoint("t/7", restore, lambda: nullcontext(tmp_path))
    assert repr(checkpoint) == "RestoredCheckpoint(t/7)"
    assert not restored
    with checkpoint.as_directory() as folder:
        assert (Path(folder) / "w").read_text() == "1"
    assert Path(checkpoint.to_directory(str(tmp_path / "copy")), "w").read_text() == "1"
    assert restored
    assert checkpoint.get_metadata() == {}


def test_what_is_measured_beside_ray_is_what_ray_does(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "w").write_text("1")
    for persist in (storages.persist_as_tune, storages.persist_as_train):
        stored = persist(tmp_path / "source", persist.__name__, storage_path=str(tmp_path / "runs"))
        assert stored.path.startswith(str(tmp_path / "runs" / persist.__name__))
        assert (Path(stored.path) / "w").read_text() == "1"
