"""Calls a searcher with suggestions and results as the core has them; shared with the simulator."""

from __future__ import annotations

from dataclasses import replace

from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from raysweep.documents.code import user_code
from raysweep.errors import SampleFromError
from raysweep.fleet.message_events import failure_of
from raysweep.search import Searcher, result_of, tell_end
from raysweep.search.machinery.asking import ask_configs
from raysweep.worker.runner import describe


def suggest(searcher: Searcher, command: cmd.SuggestConfigs, at: float) -> ev.ConfigsSuggested:
    """Ask the searcher what the core wants to know. An error about one config is that trial's failure."""
    answer = ask_configs(searcher, command.first, command.count)
    return ev.ConfigsSuggested(
        at=at,
        first=command.first,
        configs=answer.configs,
        is_exhausted=answer.is_exhausted,
        note=answer.note,
        failed=tuple(
            ev.FailedConfig(number=number, failure=_failure(error)) for number, error in answer.failed
        ),
    )


def tell(searcher: Searcher, command: cmd.TellSearch | cmd.TellRung) -> None:
    """Let the searcher know how a trial ended, or how far it had come."""
    user_code.call(_tell, searcher, command)


def _tell(searcher: Searcher, command: cmd.TellSearch | cmd.TellRung) -> None:
    if isinstance(command, cmd.TellRung):
        searcher.tell_rung(command.trial, command.time, command.value)
        return
    end = command.end
    if not (command.violations or command.others) and command.cost is None and end != "infeasible":
        searcher.tell(command.trial, command.value, end)
        return
    result = result_of(command.value, command.violations, command.others, command.cost)
    tell_end(searcher, command.trial, result, state=end)


def _failure(error: Exception) -> Failure:
    """The failure of the user's function; where that is none, the error itself."""
    cause = error.__cause__
    if not isinstance(error, SampleFromError) or cause is None:
        return failure_of(describe(error))
    failure = failure_of(describe(cause))
    return replace(failure, message=f"{failure.message} (sample_from of {error.field})")
