"""The spec's rules for workers, and time limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from raysweep.core.state.compiled_parts import checkpoint_metric
from raysweep.fleet.evaluations import EvaluationRules
from raysweep.fleet.reduction import Rule
from raysweep.space.amounts import Size, amounts_of
from raysweep.specs import SweepSpec
from raysweep.specs.trial.scaling import torch_group

INTERRUPT_GRACE_S: Final = 2.0
"""From the interruption until the process is killed; a spare worker is warm by then."""
KILL_GRACE_S: Final = 10.0
"""A forked trial that was to be killed and is still there: its worker does not answer, and goes with it."""
SILENCE_S: Final = 30.0
"""A link that is down while Ray says nothing about the actor: after this the worker counts as dead."""
LAST_WORDS_S: Final = 2.0
"""A dead process's link ends right after its last bytes; that of a dead node may never."""
GANG_GRACE_S: Final = 2.0
"""The time for the members of a gang to end once one of them has ended without returning."""
LINGER_S: Final = 1.0
"""A group that is given back serves the next slot at once; a new one would take Ray up to a second."""
REPLACE_S: Final = 30.0
"""The time beyond `placement_timeout_s` for a replacement to connect, on a busy machine."""
HURRY_INTERRUPT_S: Final = 0.3
HURRY_LET_GO_S: Final = 1.0
"""Ray kills the driver of a stopped job 3 s after SIGTERM: by then the outcome is written. What has not ended
at its next report is interrupted, then let go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPolicy:
    """The spec's rules for workers. `can_spare`: the next worker may be warmed up beside the present one.

    `max_trials`: a worker is replaced after so many; None: it is not.
    `world_size`: how many members a usual slot has; 0 where trials are no gangs. `process_group`: what
    connects them; with `follows_gpus`, in a slot of another size what goes with its GPUs. `reduction`: how
    their reports become one; None: rank 0's count. `evaluations`: how checkpoints are evaluated; None: not.
    """

    isolation: str
    max_trials: int | None = None
    can_spare: bool
    start_timeout_s: float | None
    placement_timeout_s: float
    memory_limit_factor: float | None
    memory_bytes: float
    world_size: int = 0
    process_group: str = ""
    follows_gpus: bool = False
    reduction: Rule | None = None
    evaluations: EvaluationRules | None = None

    @classmethod
    def of(cls, spec: SweepSpec) -> FleetPolicy:
        """The policy of a spec."""
        isolation, scaling = spec.effective_isolation, spec.gang
        is_spared = isolation not in ("process", "inline") and scaling is None
        return cls(
            isolation=isolation,
            max_trials=spec.worker_max_trials,
            can_spare=not spec.may_have_gpus and is_spared,
            start_timeout_s=spec.failure.start_timeout_s,
            placement_timeout_s=spec.failure.placement_timeout_s,
            memory_limit_factor=spec.failure.memory_limit_factor,
            memory_bytes=spec.shape.bundles[0].get("memory", 0.0),
            world_size=scaling.max_workers if scaling is not None else 0,
            process_group=(scaling.process_group or "") if scaling is not None else "",
            follows_gpus=scaling is not None and scaling.backend == "torch",
            reduction=Rule.of(spec, checkpoint_metric(spec)),
            evaluations=_evaluations(spec),
        )

    def members(self, size: Size) -> int:
        """The number of members of a slot of this size."""
        return int(amounts_of(size).get("num_workers", self.world_size or 1)) if self.world_size else 1

    def group_of(self, size: Size) -> str:
        """The process group of the members of a slot of this size; empty: none."""
        gpus = amounts_of(size).get("gpu") if self.follows_gpus else None
        return self.process_group if gpus is None else torch_group(gpus)

    def memory_limit(self, slot_bytes: int | None) -> int | None:
        """The memory that a trial may hold in a slot that was opened with `slot_bytes`; None: no limit."""
        asked = slot_bytes or self.memory_bytes
        factor = self.memory_limit_factor
        return int(factor * asked) if factor is not None and asked else None


def _evaluations(spec: SweepSpec) -> EvaluationRules | None:
    asked = spec.evaluate
    if asked is None:
        return None
    by = checkpoint_metric(spec)
    return EvaluationRules(
        every=asked.every,
        tries=asked.tries,
        metric=spec.metric,
        ranks_by=by,
        is_by_trainer=asked.is_by_trainer,
    )
