"""The standing of a run without an outcome, by its heartbeat alone.

`state_status.py` makes it of a sweep's state, and `reader.py` reads both from the storage. All times are UTC
seconds.
"""

from __future__ import annotations

from raysweep.outcome import BestTrial, Standing, SweepProgress, TrialOutcome, TrialState
from raysweep.outcome.progress import HolderState
from raysweep.outcome.standing import INTERRUPTED, MAX_NOTES
from raysweep.runs.ownership.holder import holder_state


def status_of_heartbeat(
    heartbeat: SweepProgress,
    *,
    uri: str,
    key: str = "",
    now: float,
    held: HolderState | None = None,
    problem: str = "",
) -> Standing:
    """Of a run without an outcome: what its heartbeat alone says.

    `held`: what became of its holder, where that is known better than by this heartbeat's time.
    """
    held = held if held is not None else holder_state(heartbeat, now)
    return Standing(
        run_id=heartbeat.sweep_id,
        name=heartbeat.name,
        uri=uri,
        key=key,
        status=heartbeat.status if held == "alive" or not heartbeat.is_at_work else INTERRUPTED,
        metric=heartbeat.metric,
        mode=heartbeat.mode,
        others=heartbeat.others,
        constraints=heartbeat.constraints,
        counts=heartbeat.counts,
        num_trials=heartbeat.num_trials,
        best=_shown(heartbeat.best, "completed"),
        ahead=_shown(heartbeat.ahead, "running"),
        started_at=heartbeat.started_at,
        deadline=heartbeat.deadline,
        expected_end_at=heartbeat.expected_end_at if held == "alive" else None,
        estimate=heartbeat.estimate if held == "alive" else None,
        slow=heartbeat.slow if held == "alive" else (),
        generation=heartbeat.generation,
        problem=problem,
        notes=(*heartbeat.notes[-MAX_NOTES:], *([problem] if problem else [])),
        heartbeat=heartbeat,
        held=held,
        read_at=now,
    )


def _shown(best: BestTrial | None, state: TrialState) -> TrialOutcome | None:
    """A trial of a heartbeat, which does not say more of its state than whether it has ended."""
    if best is None:
        return None
    number = int(best.trial_id) if best.trial_id.isdigit() else 0
    return TrialOutcome(
        trial_id=best.trial_id,
        number=number,
        state=state,
        score=best.score,
        config=best.config,
        metrics=best.metrics,
    )
