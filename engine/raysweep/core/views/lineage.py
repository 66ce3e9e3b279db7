"""The configs that made a trial what it is: one after the other, each from where it took over.

A lineage is kept of a trial that has continued with another config, or from another trial's checkpoint. Each
entry is a config and the number of reports that lay behind the checkpoint which it continued from: it made
what came after, up to the next entry. A checkpoint has the lineage of its trial up to its own iteration, so
one that is handed on takes the donor's with it, however often that one was replaced itself.
"""

from __future__ import annotations

from dataclasses import replace

from raysweep.core.state.trial import Trial
from raysweep.core.state.trial_parts import Lineage


def lineage_of(trial: Trial) -> Lineage:
    """The configs of a trial; its only one from the start where it never had another."""
    return trial.ancestry.lineage or ((0, trial.config),)


def up_to(lineage: Lineage, iteration: int) -> Lineage:
    """The configs that made the first `iteration` reports."""
    return tuple(each for each in lineage if each[0] < iteration)


def inherit(trial: Trial) -> None:
    """The trial made nothing with its config: it has config and result of what made its checkpoint."""
    known, results = trial.ancestry, trial.results
    lineage, suggested = up_to(known.lineage, results.attempt_iteration), known.suggested
    made_by = lineage[-1][1]
    if made_by != trial.config and suggested is None:
        suggested = trial.config
    trial.ancestry = replace(known, lineage=lineage, suggested=suggested)
    trial.config = made_by
    results.last = results.best = known.inherited


def begin(trial: Trial) -> None:
    """An attempt runs: what lies past its checkpoint is made anew, with the trial's present config.

    A trial that never continued with another config or checkpoint needs no lineage.
    """
    if not trial.ancestry.lineage:
        return
    iteration = trial.results.attempt_iteration
    before = up_to(trial.ancestry.lineage, iteration)
    if not before or before[-1][1] != trial.config:
        before = (*before, (iteration, trial.config))
    trial.ancestry = replace(trial.ancestry, lineage=before)
