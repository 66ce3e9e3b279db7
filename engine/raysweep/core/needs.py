"""What a trial needs by its config, where the spec says so (`resources.by_config`)."""

from __future__ import annotations

from raysweep.core.failures import Failure
from raysweep.core.state import SweepState
from raysweep.core.trial import Trial
from raysweep.errors import SpecError


def note(state: SweepState, trial: Trial) -> Failure | None:
    """Note what an active trial needs beyond the usual; why it cannot be told, if so.

    It only grows: what a trial had run out of memory with, it does not try again with another config.
    """
    amount = state.rules.memory_by_config
    if amount is None:
        return None
    try:
        need = amount.of(trial.config)
    except SpecError as error:
        return Failure(origin="exception", type="SpecError", message=str(error))
    usual = trial.memory_bytes or state.spec.resources.memory or 0
    if need is not None and need > usual:
        state.hungry_for_memory += trial.memory_bytes is None
        trial.memory_bytes = need
        state.tally.large.add(trial.number)
    return None
