"""The continuation of a trial after a verdict, and the checkpoints that are kept for it.

A trial that exploits another continues from that one's newest checkpoint as of the verdict. From then on the
checkpoint is pinned: until the trial has one of its own, nothing deletes it, whatever becomes of its owner.
"""

from __future__ import annotations

from dataclasses import replace

from raysweep.core.handlers import sizes, transitions, trial_rules
from raysweep.core.state.sweep import SweepState
from raysweep.core.state.trial import Trial
from raysweep.core.state.trial_parts import NO_METRICS, Checkpoint, Metrics, Turn
from raysweep.core.views.lineage import lineage_of, up_to
from raysweep.core.views.scores import as_number
from raysweep.core.vocabulary.commands import Command, DeleteCheckpoint
from raysweep.schedulers import Exploit, Pause, Resize, Resume, Stop, Verdict

Out = list[Command]


def turn_of(state: SweepState, trial: Trial, verdict: Verdict) -> Turn:
    """The meaning of a verdict for a trial now."""
    match verdict:
        case Stop():
            return Turn(reason="scheduler")
        case Pause():
            return Turn(reason="pause")
        case Resume():
            config = dict(verdict.config) if verdict.config is not None else None
            return Turn(reason="resume", config=config)
        case Exploit():
            return _exploit(state, trial, verdict)
        case Resize():
            return Turn(reason="exploit", config=dict(verdict.config), keeps_results=True)


def _exploit(state: SweepState, trial: Trial, verdict: Exploit) -> Turn:
    config, donor = dict(verdict.config), state.trials.get(verdict.donor)
    checkpoint = donor.checkpoint if donor is not None else None
    if donor is None or checkpoint is None:
        text = f"trial {verdict.donor} has no checkpoint that trial {trial.number} could continue from"
        transitions.note(state, f"{text}: that one continues from its own, with the other config")
        return Turn(reason="exploit", config=config)
    made_by = up_to(lineage_of(donor), checkpoint.iteration)
    if checkpoint.owner is None:
        checkpoint = replace(checkpoint, owner=verdict.donor)
    return Turn(
        reason="exploit",
        config=config,
        donor=verdict.donor,
        checkpoint=checkpoint,
        lineage=made_by,
        result=_result_at(state, donor, checkpoint),
    )


def _result_at(state: SweepState, trial: Trial, checkpoint: Checkpoint | None) -> Metrics:
    """The report of a trial's newest checkpoint; nothing where that is not known."""
    results = trial.results
    if not results.last:
        return trial.ancestry.inherited
    if checkpoint is None or checkpoint.iteration != results.iteration or checkpoint.score is None:
        return NO_METRICS
    # After a retry the last report may be one that the trial makes again.
    return (
        results.last
        if as_number(results.last.get(state.rules.objective.metric)) == checkpoint.score
        else NO_METRICS
    )


def give(state: SweepState, trial: Trial, turn: Turn, out: Out) -> None:
    """Remember what becomes of a trial that is on a slot; the last word counts."""
    if turn.checkpoint is not None:
        state.tally.pins[turn.checkpoint.uri] += 1
    drop(state, trial, out)
    trial.turn = turn


def drop(state: SweepState, trial: Trial, out: Out) -> None:
    """Nothing becomes of what was remembered."""
    turn, trial.turn = trial.turn, None
    if turn is not None and turn.checkpoint is not None:
        _release(state, turn.checkpoint, out)


def follow(state: SweepState, trial: Trial, turn: Turn, out: Out) -> None:
    """The trial continues as its turn says. Its results are those of its config: they begin anew with it.

    But for a turn that keeps them.
    """
    donated, before = turn.checkpoint, trial.config
    is_other = turn.config is not None and turn.config != before
    if trial.attempts and (is_other or donated is not None):
        last, config = trial.attempts[-1], before if is_other else None
        if last.config is not None:
            config = last.config  # nothing has run with the one that it was given since
        trial.attempts = (*trial.attempts[:-1], replace(last, config=config, donor=turn.donor))
    if is_other or donated is not None:
        lineage = turn.lineage if donated is not None else lineage_of(trial)
        trial.ancestry = replace(trial.ancestry, lineage=lineage)
    if is_other and turn.config is not None:
        if trial.ancestry.suggested is None:
            trial.ancestry = replace(trial.ancestry, suggested=before)
        trial.config = turn.config
        sizes.note(state, trial)
    if (is_other and not turn.keeps_results) or donated is not None:
        inherited = turn.result if donated is not None else _result_at(state, trial, trial.checkpoint)
        trial.ancestry = replace(trial.ancestry, inherited=inherited)
        results = trial.results
        results.last = results.best = NO_METRICS
        results.last_score = results.best_score = None
        results.recent, results.improved = (), None
        trial_rules.forget(state, trial.number)
    if donated is not None:
        state.tally.pins[donated.uri] += 1
        checkpoints, trial.checkpoints = trial.checkpoints, ()
        for checkpoint in checkpoints:
            discard(state, trial.number, checkpoint, out)
        let_origin_go(state, trial, out)
        trial.ancestry = replace(trial.ancestry, origin=donated)


def undo_resize(state: SweepState, trial: Trial) -> bool:
    """Give a pending trial the config back that it had before it was enlarged; False: it was not, or has run.

    A trial whose last turn did not keep its results has none: it began anew with another config.
    """
    last = trial.attempts[-1] if trial.attempts else None
    if last is None or last.config is None or last.donor is not None or not trial.results.last:
        return False
    if not sizes.is_more(state, trial.config, than=last.config):
        return False
    trial.config = last.config
    trial.attempts = (*trial.attempts[:-1], replace(last, config=None))
    if trial.ancestry.suggested == trial.config and trial.ancestry.lineage == ((0, trial.config),):
        trial.ancestry = replace(trial.ancestry, suggested=None, lineage=())
    sizes.note(state, trial, is_given_up=True)
    return True


def let_origin_go(state: SweepState, trial: Trial, out: Out) -> None:
    """The trial does not need the checkpoint any more that another one made."""
    origin = trial.ancestry.origin
    if origin is not None:
        trial.ancestry = replace(trial.ancestry, origin=None)
        _release(state, origin, out)


def discard(state: SweepState, owner: int, checkpoint: Checkpoint, out: Out) -> None:
    """Delete a checkpoint that its own trial does not need any more, unless another one does."""
    if not state.tally.pins[checkpoint.uri]:
        out.append(DeleteCheckpoint(trial=owner, number=checkpoint.number, uri=checkpoint.uri))


def _release(state: SweepState, checkpoint: Checkpoint, out: Out) -> None:
    pins, owner = state.tally.pins, checkpoint.owner
    pins[checkpoint.uri] -= 1
    if not pins[checkpoint.uri]:
        del pins[checkpoint.uri]
        if owner is not None and all(own.uri != checkpoint.uri for own in state.trials[owner].checkpoints):
            discard(state, owner, checkpoint, out)
