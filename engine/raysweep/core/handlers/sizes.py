"""The needs of a trial by its config (`by_config`), and after it ran out of a shared GPU's memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pydantic import JsonValue

from raysweep.core.state.sweep import SweepState
from raysweep.core.state.trial import Slot, Trial
from raysweep.core.vocabulary.failures import Failure
from raysweep.errors import SpecError
from raysweep.space.amounts import Needs, Size, amounts_of, size_of


def note(state: SweepState, trial: Trial, *, is_given_up: bool = False) -> Failure | None:
    """Note what an active trial needs beyond the usual; why it cannot be told, if so.

    Its memory only grows: what a trial had run out of memory with, it does not try again with another config.
    `is_given_up`: the config before this one was never run, and what memory it needed does not count.
    """
    needs = state.rules.slots.needs
    if not needs:
        return None
    try:
        amounts = {need.name: amount for need in needs if (amount := need.of(trial.config)) is not None}
    except SpecError as error:
        return Failure(origin="exception", type="SpecError", message=str(error))
    was_large = trial.is_large
    known = trial.needs.memory_bytes
    if is_given_up and all(attempt.kind != "oom" for attempt in trial.attempts):
        known = None
    memory = int(amounts.pop("memory", 0))
    if any(attempt.kind == "gpu_oom" for attempt in trial.attempts) and _shares_gpu(state, amounts):
        amounts["gpu"] = 1.0
    needed = memory if memory > (known or 0) else known
    _resize(state, trial, Needs(memory_bytes=needed, size=size_of(amounts)), was_large=was_large)
    return None


def take_whole_gpu(state: SweepState, trial: Trial) -> bool:
    """Give a trial that had a part of a GPU a whole one from its next attempt on; False: it had no part.

    Only a trial that is one process with one bundle: other bundles, and those of gangs, stay as asked for.
    """
    amounts = amounts_of(trial.needs.size)
    if not _shares_gpu(state, amounts):
        return False
    size = size_of({**amounts, "gpu": 1.0})
    _resize(state, trial, replace(trial.needs, size=size), was_large=trial.is_large)
    return True


def _shares_gpu(state: SweepState, amounts: Mapping[str, float]) -> bool:
    """True if a trial of these amounts has a part of a GPU, and can have a whole one."""
    resources = state.spec.resources
    if state.spec.scaling is not None or state.spec.is_inline or resources.bundles:
        return False
    if state.rules.ends.budgets:  # they count slots that are all alike
        return False
    usual = resources.shape().own.get("GPU", 0.0)
    return 0 < amounts.get("gpu", usual) < 1


def _resize(state: SweepState, trial: Trial, needs: Needs, *, was_large: bool) -> None:
    trial.needs = needs
    state.line.hungry_for_memory += trial.is_large - was_large
    if trial.is_large:
        state.tally.large.add(trial.number)
    else:
        state.tally.large.discard(trial.number)


def is_more(state: SweepState, config: Mapping[str, JsonValue], *, than: Mapping[str, JsonValue]) -> bool:
    """True if a trial with this config needs more of anything than with the other, as far as can be told."""
    try:
        pairs = [(need.of(config), need.of(than)) for need in state.rules.slots.needs]
    except SpecError:
        return False
    return any((now or 0) > (before or 0) for now, before in pairs)


def needed_sizes(state: SweepState) -> list[Size]:
    """The sizes that active trials need, each once; those of gangs with their memory."""
    if not state.line.hungry_for_memory:
        return []
    trials = (state.trials[number] for number in sorted(state.tally.large) if number in state.line.active)
    return sorted({size for trial in trials if (size := _with_memory(state, trial))})


def is_beyond(state: SweepState, asking: Trial | Slot) -> bool:
    """True if no node has room for the size of a trial or a slot, or of a gang for that with its memory."""
    beyond = state.room.beyond
    return bool(beyond) and (asking.needs.size in beyond or _with_memory(state, asking) in beyond)


def _with_memory(state: SweepState, asking: Trial | Slot) -> Size:
    """Each member of a gang takes the memory, so that the largest node alone does not tell who has it."""
    if asking.needs.memory_bytes is None or state.spec.gang is None:
        return asking.needs.size
    return size_of({**amounts_of(asking.needs.size), "memory": asking.needs.memory_bytes})
