"""Evaluations on Ray: placement groups of their own, in each of which one task runs."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from raysweep.cluster.evaluators import Answer, Evaluators, Slot, make_evaluation_setup
from raysweep.worker.evaluation import EvaluationJob, evaluate

if TYPE_CHECKING:
    from raysweep.runs.folder import SweepFolder
    from raysweep.specs import SweepSpec
    from raysweep.specs.trial.evaluate import EvaluateSpec

log = logging.getLogger("raysweep")


class RayEvaluators(Evaluators):
    """See `Evaluators`."""

    def __init__(self, spec: SweepSpec, asked: EvaluateSpec, folder: SweepFolder, answer: Answer) -> None:
        super().__init__(spec, asked, answer)
        self._setup = ray.put(make_evaluation_setup(spec, asked, folder))
        # A process gives the memory of a GPU back only when it ends.
        self._task: Any = ray.remote(max_calls=1)(evaluate) if asked.resources.gpu else ray.remote(evaluate)

    def find_groups(self) -> dict[str, list[dict[str, float]]]:
        """The placement groups by Ray's ids, with their bundles."""
        return {slot.group.id.hex(): [self._bundle] for slot in self._slots}

    def _ask_for_place(self) -> Any:
        return placement_group([self._bundle])

    def _has_place(self, slot: Slot) -> bool:
        return bool(slot.group.wait(0))

    def _give_back(self, slot: Slot) -> None:
        remove_placement_group(slot.group)

    def _launch(self, slot: Slot, job: EvaluationJob) -> Any:
        own = dict(self._bundle)
        options = {
            "num_cpus": own.pop("CPU", 0.0),
            "num_gpus": own.pop("GPU", 0.0),
            "memory": own.pop("memory", None),
            "resources": own or None,
        }
        ref = self._task.options(
            name=f"evaluate {job.trial:05d}/{job.iteration}",
            max_retries=0,
            # It has all of its bundle: what it starts would wait there for ever.
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                slot.group, placement_group_bundle_index=0, placement_group_capture_child_tasks=False
            ),
            **options,
        ).remote(self._setup, job)
        self._watch(slot, ref)
        return ref

    def _watch(self, slot: Slot, ref: Any) -> None:
        loop = asyncio.get_running_loop()

        def ended(future: Any) -> None:
            error = future.exception()
            found = None if error is not None else future.result()
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._take_end, slot, ref, found, error)

        ref.future().add_done_callback(ended)

    def _kill(self, ref: Any) -> None:
        try:
            ray.cancel(ref, force=True)
        except (RayError, ValueError) as error:  # it is ending by itself, or Ray's control store is away
            log.warning("an evaluation could not be cancelled: %s", error)
