"""What a trial needs by its config, where the spec says so (`by_config`)."""

from __future__ import annotations

from raysweep.core.failures import Failure
from raysweep.core.state import SweepState
from raysweep.core.trial import Trial
from raysweep.errors import SpecError
from raysweep.spec.amounts import Size, size_of


def note(state: SweepState, trial: Trial) -> Failure | None:
    """Note what an active trial needs beyond the usual; why it cannot be told, if so.

    Its memory only grows: what a trial had run out of memory with, it does not try again with another config.
    """
    needs = state.rules.needs
    if not needs:
        return None
    try:
        amounts = {need.name: amount for need in needs if (amount := need.of(trial.config)) is not None}
    except SpecError as error:
        return Failure(origin="exception", type="SpecError", message=str(error))
    was_large = trial.is_large
    memory = int(amounts.pop("memory", 0))
    usual = state.spec.resources.memory or 0
    if memory > (trial.memory_bytes or usual):
        trial.memory_bytes = memory
    trial.size = size_of(amounts)
    state.hungry_for_memory += trial.is_large - was_large
    if trial.is_large:
        state.tally.large.add(trial.number)
    else:
        state.tally.large.discard(trial.number)
    return None


def needed_sizes(state: SweepState) -> list[Size]:
    """The sizes that active trials need, each once."""
    if not state.hungry_for_memory:
        return []
    trials = (state.trials[number] for number in sorted(state.tally.large) if number in state.active)
    return sorted({trial.size for trial in trials if trial.size})
