"""A training whose number of workers follows the cluster, between two bounds.

Ray Train's own policy asks a coordinator, which is an actor with Ray Data's autoscaler in it, and looks every
60 s. Here the calling process looks at the nodes itself, when there is something to decide:

- workers are to be started: as many as have room now on nodes that stay, at least the smaller bound, which is
  waited for like a fixed number;
- a checkpoint has just been stored, and more have room: then a restart costs no step. A run that reports none
  keeps its size;
- a node is announced to go: as soon as a checkpoint has been stored since, the rest continues without it. Ray
  Train keeps all workers until the node's time, and what they do after that checkpoint is done again.

Neither is done once the run is about to end with its next checkpoint.

Imports Ray Train.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from ray.train.v2._internal.execution.scaling_policy import NoopDecision, ResizeDecision
from ray.train.v2._internal.execution.worker_group import WorkerGroup

from raysweep.raycompat.cluster import draining_nodes, free_by_node, labels_by_node
from raysweep.raycompat.labels import has_labels
from raysweep.raycompat.preemption import PreemptingState, PreemptionError
from raysweep.raycompat.train import FixedSize, LocalController

_EPSILON: Final = 1e-6


def count_workers(bundle: Mapping[str, float], nodes: Sequence[Mapping[str, float]], strategy: str) -> int:
    """The number of workers of this bundle for which the nodes have room."""
    room = [
        int(min((node.get(name, 0.0) / amount + _EPSILON for name, amount in bundle.items()), default=0))
        for node in nodes
    ]
    if strategy == "STRICT_PACK":
        return max(room, default=0)
    return sum(map(bool, room)) if strategy == "STRICT_SPREAD" else sum(room)


class ElasticSize(FixedSize):
    """As many workers as have room, between the bounds of the ScalingConfig.

    Args:
        scaling_config: With `num_workers=(min, max)`.
        interval_s: A group of workers is not ended for a larger one before it has run so long.
        nodes: Gives what each node that stays has free, in Ray's keys, by the node's id.
        clock: Gives seconds that only grow.
        time_left: Gives the seconds until the run ends with its next checkpoint: workers that would not run
            for `interval_s` before that are not started for more.
    """

    def __init__(
        self,
        scaling_config: Any,
        interval_s: float,
        nodes: Callable[[], Mapping[str, Mapping[str, float]]] | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        time_left: Callable[[], float] = lambda: math.inf,
    ) -> None:
        super().__init__(scaling_config)
        self._interval_s = interval_s
        self._nodes = nodes if nodes is not None else partial(nodes_that_stay, scaling_config.label_selector)
        self._clock = clock
        self._time_left = time_left
        self._began_at = clock()
        self._judged: Any = None
        self.at_work: Callable[[], Sequence[str]] = tuple
        """The nodes of the present workers, each as often as it has one."""
        self.newest_checkpoint: Callable[[], Any] = lambda: None
        """The latest checkpoint of the checkpoint manager."""

    @property
    def is_ending(self) -> bool:
        """True if the run ends with its next checkpoint."""
        return self._time_left() <= 0

    def make_decision_for_non_running_worker_group(self) -> Any:
        self._began_at = self._clock()
        self._judged = self.newest_checkpoint()
        return self._resize(max(self.count_room(), self.scaling_config.min_workers))

    def make_decision_for_running_worker_group(
        self, worker_group_state: Any, worker_group_status: Any
    ) -> Any:
        newest = self.newest_checkpoint()
        if newest is self._judged or self._clock() - self._began_at < self._interval_s:
            return NoopDecision()
        self._judged = newest
        if self._time_left() <= self._interval_s:
            return NoopDecision()
        room = self.count_room()
        if room <= worker_group_state.num_workers:
            return NoopDecision()
        self._began_at = self._clock()
        return self._resize(room)

    def count_room(self) -> int:
        """The number of workers that have room, those at work included; at most the larger bound."""
        bundle = self.scaling_config._resources_per_worker_not_none
        needed = {name: amount for name, amount in bundle.items() if amount}
        nodes = {node: dict(free) for node, free in self._nodes().items()}
        for node in self.at_work():
            if node in nodes:
                for name, amount in needed.items():
                    nodes[node][name] = nodes[node].get(name, 0.0) + amount
        strategy = str(self.scaling_config.placement_strategy)
        found = count_workers(needed, list(nodes.values()), strategy)
        return min(found, self.scaling_config.max_workers)

    def _resize(self, number: int) -> ResizeDecision:
        each = self.scaling_config._resources_per_worker_not_none
        return ResizeDecision(num_workers=number, resources_per_worker=each)


def nodes_that_stay(selector: Mapping[str, str] | None = None) -> dict[str, Mapping[str, float]]:
    """The free resources of each live node with these labels that is not announced to go."""
    left_out = set(draining_nodes())
    if selector:
        labels = labels_by_node()
        left_out |= {node for node, own in labels.items() if not has_labels(own, selector)}
    return {node: free for node, free in free_by_node().items() if node not in left_out}


class ElasticController(LocalController):
    """Leaves a node that is announced to go as soon as a checkpoint has been stored since."""

    _announced_at: float | None = None
    _announced_with: Any = None

    def follow(self, policy: ElasticSize) -> None:
        """Tell the policy what it asks for."""
        policy.at_work = self._nodes_at_work
        policy.newest_checkpoint = lambda: self.newest_checkpoint

    def _nodes_at_work(self) -> list[str]:
        group: WorkerGroup | None = self.get_worker_group()
        if group is None or not group.has_started():
            return []
        return [worker.metadata.node_id for worker in group.get_workers()]

    async def _handle_preempting_state(self, controller_state: Any) -> Any:
        newest = self.newest_checkpoint
        if self._announced_at != controller_state.detected_at_s:
            self._announced_at, self._announced_with = controller_state.detected_at_s, newest
        result = await super()._handle_preempting_state(controller_state)
        has_stored = self.newest_checkpoint is not self._announced_with
        if not has_stored or not isinstance(result.next_state, PreemptingState) or not self._can_leave():
            return result
        error = PreemptionError(preemption_info=result.next_state.preemption_info)
        decision = self._failure_policy.make_decision(training_failed_error=error)
        return self._execute_failure_decision(decision, training_failed_error=error)

    def _can_leave(self) -> bool:
        policy: Any = self._scaling_policy
        if policy.is_ending:
            return False
        return bool(policy.count_room() >= policy.scaling_config.min_workers)
