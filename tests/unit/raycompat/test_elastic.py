"""How many workers an elastic training has, and when that changes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import ray.train
from ray.train.v2._internal.exceptions import WorkerGroupStartupTimeoutError
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2._internal.execution.controller.state import RestartingState
from ray.train.v2._internal.execution.failure_handling import FailureDecision
from ray.train.v2._internal.execution.scaling_policy import ElasticScalingPolicy, NoopDecision
from ray.train.v2._internal.execution.worker_group import WorkerGroup
from ray.train.v2.api.exceptions import ControllerError

from raysweep.raycompat import elastic, train
from raysweep.raycompat.preemption import PreemptingState, PreemptionError, PreemptionInfo
from tests.unit.raycompat.moved import check_uses, parameters, since

Nodes = dict[str, Mapping[str, float]]


class Cluster:
    """Nodes, checkpoints and a clock, as a policy sees them."""

    def __init__(self, bounds: tuple[int, int] = (1, 4), **scaling: Any) -> None:
        self.nodes: Nodes = {"a": {"CPU": 2.0}}
        self.at_work: list[str] = []
        self.checkpoint: object = None
        self.now = 0.0
        self.asks_at = math.inf
        config = ray.train.ScalingConfig(num_workers=bounds, **scaling)
        self.policy = elastic.ElasticSize(
            config, 10.0, lambda: self.nodes, lambda: self.now, time_left=lambda: self.asks_at - self.now
        )
        self.policy.at_work = lambda: self.at_work
        self.policy.newest_checkpoint = lambda: self.checkpoint

    def start(self) -> int:
        """Workers are started, and take their room."""
        number: int = self.policy.make_decision_for_non_running_worker_group().num_workers
        self.at_work = [name for name, free in self.nodes.items() for _ in range(int(free["CPU"]))][:number]
        for name in set(self.at_work):
            self.nodes[name] = {"CPU": self.nodes[name]["CPU"] - self.at_work.count(name)}
        return number

    def save(self) -> None:
        self.checkpoint = object()

    def look(self) -> int | None:
        """A poll of running workers: how many there are to be; None: as there are."""
        state = SimpleNamespace(num_workers=len(self.at_work))
        found = self.policy.make_decision_for_running_worker_group(state, None)
        return None if isinstance(found, NoopDecision) else found.num_workers


def test_as_many_workers_start_as_have_room_between_the_bounds() -> None:
    assert Cluster().start() == 2
    assert Cluster((1, 1)).start() == 1
    full = Cluster((2, 4))
    full.nodes = {"a": {"CPU": 1.0}}
    assert full.start() == 2, "the smaller number is waited for"


def test_a_run_grows_right_after_a_checkpoint_and_never_between_two() -> None:
    it = Cluster()
    it.start()
    it.nodes["b"] = {"CPU": 1.0}
    it.now = 100.0
    assert it.look() is None
    it.save()
    assert it.look() == 3
    assert it.look() is None, "once"


def test_workers_run_a_while_before_they_are_ended_for_more() -> None:
    it = Cluster()
    it.start()
    it.nodes["b"] = {"CPU": 1.0}
    it.now = 9.0
    it.save()
    assert it.look() is None
    it.now = 11.0
    assert it.look() == 3, "that checkpoint was not judged yet"


def test_a_checkpoint_that_workers_resume_from_is_none_of_their_own() -> None:
    it = Cluster()
    it.save()
    it.start()
    it.nodes["b"] = {"CPU": 1.0}
    it.now = 100.0
    assert it.look() is None


def test_a_run_with_room_for_no_more_is_left_alone() -> None:
    it = Cluster()
    it.start()
    it.now = 100.0
    it.save()
    assert it.look() is None
    it.nodes["b"] = {"CPU": 9.0}
    it.save()
    assert it.look() == 4, "no more than the larger bound"


@pytest.mark.parametrize(("now", "expected"), [(89.0, 3), (90.0, None), (100.0, None), (150.0, None)])
def test_no_workers_are_started_for_more_room_where_the_end_is_near(now: float, expected: int | None) -> None:
    """At 100 s workers are asked for the last checkpoint; new ones are to run for 10 s before that."""
    it = Cluster()
    it.start()
    it.asks_at, it.now = 100.0, now
    it.nodes["b"] = {"CPU": 1.0}
    it.save()
    assert it.look() == expected
    assert it.policy.is_ending == (now >= 100.0)


def test_workers_that_are_lost_are_started_again_however_near_the_end_is() -> None:
    it = Cluster()
    it.asks_at, it.now = 100.0, 150.0
    assert it.start() == 2


def test_after_a_nodes_death_those_that_are_left_count_with_what_their_own_workers_hold() -> None:
    it = Cluster()
    it.nodes["b"] = {"CPU": 2.0}
    assert it.start() == 4
    del it.nodes["b"]
    assert it.nodes["a"]["CPU"] == 0.0
    assert it.policy.make_decision_for_non_running_worker_group().num_workers == 2


@pytest.mark.parametrize(
    ("strategy", "expected"), [("PACK", 5), ("SPREAD", 5), ("STRICT_PACK", 3), ("STRICT_SPREAD", 2)]
)
def test_the_strategy_says_which_nodes_count(strategy: str, expected: int) -> None:
    nodes = [{"CPU": 6.0, "GPU": 3.0}, {"CPU": 9.0, "GPU": 2.0}, {"CPU": 1.0, "GPU": 8.0}]
    assert elastic.count_workers({"CPU": 2.0, "GPU": 1.0}, nodes, strategy) == expected


def test_fractions_are_counted_as_ray_counts_them() -> None:
    assert elastic.count_workers({"CPU": 0.1}, [{"CPU": 0.3}], "PACK") == 3


def test_nodes_that_are_announced_to_go_have_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elastic, "free_by_node", lambda: {"a": {"CPU": 2.0}, "b": {"CPU": 1.0}})
    monkeypatch.setattr(elastic, "draining_nodes", lambda: {"b": 5.0})
    assert elastic.nodes_that_stay() == {"a": {"CPU": 2.0}}


def test_only_nodes_with_the_labels_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elastic, "free_by_node", lambda: {"a": {"CPU": 2.0}, "b": {"CPU": 1.0}})
    monkeypatch.setattr(elastic, "draining_nodes", dict)
    monkeypatch.setattr(elastic, "labels_by_node", lambda: {"a": {"kind": "small"}, "b": {"kind": "big"}})
    config = ray.train.ScalingConfig(num_workers=(1, 4), label_selector={"kind": "big"})
    assert elastic.ElasticSize(config, 10.0).count_room() == 1


def test_a_number_that_finds_no_place_is_thought_over_and_charged_to_nobody() -> None:
    def refuse(error: BaseException) -> bool:
        pytest.fail("asked for")

    decision = train.Decision(None, refuse)
    error = ControllerError(WorkerGroupStartupTimeoutError(num_workers=4))
    assert decision.make_decision(error) is FailureDecision.RETRY


# -- a node that is announced to go -------------------------------------------------------------------------


class Leaving(elastic.ElasticController):
    """A controller whose node is announced to go, without a cluster."""

    def __init__(self, room: int, polls: list[Callable[[Leaving], None]], *, is_ending: bool = False) -> None:
        config = SimpleNamespace(min_workers=1)
        self._scaling_policy = SimpleNamespace(
            count_room=lambda: room, scaling_config=config, is_ending=is_ending
        )
        self._checkpoint_manager = SimpleNamespace(latest_checkpoint_result="before")
        self._failure_policy = train.Decision(None, lambda error: False)
        self.polls = polls
        self.left: list[Any] = []

    def _execute_failure_decision(
        self, failure_decision: Any, training_failed_error: Any, *_: Any, **__: Any
    ) -> Any:
        self.left.append((failure_decision, training_failed_error))
        return SimpleNamespace(next_state=RestartingState(training_failed_error=training_failed_error))


@pytest.fixture
def preempting(monkeypatch: pytest.MonkeyPatch) -> Any:
    info = PreemptionInfo(deadline_ms=None, preempted_node_to_ranks={"b": [1]})
    state = PreemptingState(preemption_info=info, detected_at_s=7.0)

    async def wait(self: Leaving, controller_state: Any) -> Any:
        self.polls.pop(0)(self)
        return SimpleNamespace(next_state=controller_state)

    # Ray's own part of it polls workers, of which there are none here.
    monkeypatch.setattr(TrainController, "_handle_preempting_state", wait)
    return state


def save(controller: Leaving) -> None:
    controller._checkpoint_manager.latest_checkpoint_result = "after"


def nothing(controller: Leaving) -> None:
    pass


@since(2, 58)
def test_the_node_is_left_once_a_checkpoint_is_stored_and_costs_no_failure(
    preempting: Any,
) -> None:
    controller = Leaving(1, [nothing, nothing, save])
    for _ in range(2):
        asyncio.run(controller._handle_preempting_state(preempting))
        assert controller.left == []
    asyncio.run(controller._handle_preempting_state(preempting))
    ((decision, error),) = controller.left
    assert decision is FailureDecision.RETRY
    assert isinstance(error, PreemptionError)


@since(2, 58)
def test_where_too_few_have_room_elsewhere_all_run_until_the_nodes_time(preempting: Any) -> None:
    controller = Leaving(0, [save])
    asyncio.run(controller._handle_preempting_state(preempting))
    assert controller.left == []


@since(2, 58)
def test_a_run_that_ends_with_this_checkpoint_leaves_no_node(preempting: Any) -> None:
    """Workers that are asked at a deadline look the same to Ray as those whose node will go."""
    controller = Leaving(1, [save], is_ending=True)
    asyncio.run(controller._handle_preempting_state(preempting))
    assert controller.left == []


@since(2, 58)
def test_each_announcement_waits_for_a_checkpoint_of_its_own(preempting: Any) -> None:
    controller = Leaving(1, [save, nothing])
    asyncio.run(controller._handle_preempting_state(preempting))
    again = PreemptingState(preemption_info=preempting.preemption_info, detected_at_s=8.0)
    asyncio.run(controller._handle_preempting_state(again))
    assert len(controller.left) == 1


# -- what it takes of Ray -----------------------------------------------------------------------------------


def test_what_is_overridden_is_there_and_takes_the_same() -> None:
    for name in (
        "make_decision_for_non_running_worker_group",
        "make_decision_for_running_worker_group",
    ):
        assert parameters(getattr(elastic.ElasticSize, name)) == parameters(
            getattr(ElasticScalingPolicy, name)
        )
    check_uses(TrainController, "def _execute_failure_decision", "latest_checkpoint_result")
    check_uses(
        WorkerGroup, "if not pg_handle.wait(", "raise WorkerGroupStartupTimeoutError(", "def get_workers"
    )


@since(2, 58)
def test_the_state_of_a_node_that_goes_is_handled_where_it_is_overridden() -> None:
    mine = elastic.ElasticController._handle_preempting_state
    assert parameters(mine) == parameters(TrainController._handle_preempting_state)
    check_uses(TrainController, "await self._handle_preempting_state(controller_state)")
