"""Tells the webhooks of a sweep that its best config is champion, by its gate or by its judge."""

from __future__ import annotations

import logging
import time
from typing import Final

from raysweep.errors import RaysweepError, one_line
from raysweep.hooks.base import CallbackOptions, CallbackSetup, SinkDownError
from raysweep.hooks.events import Promoted
from raysweep.outcome import GateOutcome, SweepOutcome
from raysweep.specs import SweepSpec

TRIES: Final = 3
PAUSE_S: Final = 1.0
log = logging.getLogger("raysweep")


def announce_verdict(spec: SweepSpec, outcome: SweepOutcome, verdict: GateOutcome) -> None:
    """As `announce`, where a gate promotes. A candidate that waits for approval is not announced."""
    if verdict.promoted and verdict.approval is None:
        announce(spec, outcome, Promoted(id=f"gate.{verdict.gate_id}", at=verdict.at, why=verdict.why))


def announce(spec: SweepSpec, outcome: SweepOutcome, event: Promoted) -> None:
    """Call `on_promoted`; log a warning for each callback that got no message.

    It runs before the verdict is stored: a process that dies in between sends the message again, with the
    same id. A callback that fails changes no verdict.
    """
    setup = CallbackSetup(
        sweep_id=outcome.sweep_id,
        name=spec.name,
        uri=outcome.uri,
        metric=spec.metric,
        mode=spec.mode,
        tags=spec.tags,
        begun_at=outcome.started_at or 0.0,
    )
    for callback in spec.callbacks:
        options = callback.options
        if isinstance(options, CallbackOptions) and options.hears_of_promotions:
            problem = _tell(options, setup, event)
            if problem:
                log.warning("callback %s: the promotion was not sent: %s", callback.kind, problem)


def _tell(options: CallbackOptions, setup: CallbackSetup, event: Promoted) -> str:
    """Tell one callback; the problem, or empty."""
    problem = ""
    for number in range(TRIES):
        if number:
            time.sleep(PAUSE_S)
        try:
            made = options.make(setup)
            try:
                made.on_promoted(event)
            finally:
                made.close()
        except SinkDownError as error:
            problem = str(error)
        except (RaysweepError, ValueError) as error:
            return one_line(str(error), 300)
        else:
            return ""
    return problem
