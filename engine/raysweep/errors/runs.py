"""Errors of sweeps and trainings: not found, held, ended without a result, interrupted."""

from __future__ import annotations

import shlex
from typing import Any, ClassVar, Final, Literal

from raysweep.errors.base import RaysweepError, one_line


class SweepNotFoundError(RaysweepError):
    """No sweep of this id is at the storage path."""

    exit_code: ClassVar[int] = 2

    def __init__(self, sweep_id: str, where: str = "", fix: str = "") -> None:
        super().__init__(sweep_id, where, fix)
        self.sweep_id = sweep_id
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        at = f" at {self.where}" if self.where else ""
        return one_line(
            f"no sweep {self.sweep_id!r}{at}; {self.fix or 'check the name, the key and the storage path'}"
        )


class LogNotFoundError(RaysweepError):
    """No log of this trial, or of this attempt of it, is stored."""

    exit_code: ClassVar[int] = 2

    def __init__(self, sweep_id: str, trial: int, attempt: int | None = None, fix: str = "") -> None:
        super().__init__(sweep_id, trial, attempt, fix)
        self.sweep_id = sweep_id
        self.trial = trial
        self.attempt = attempt
        self.fix = fix

    def __str__(self) -> str:
        which = f"attempt {self.attempt} of " if self.attempt is not None else ""
        return one_line(f"no log of {which}trial {self.trial} of {self.sweep_id!r} is stored; {self.fix}")


class SweepHeldError(RaysweepError):
    """Another controller that is alive holds the sweep."""

    retryable: ClassVar[bool] = True
    exit_code: ClassVar[int] = 5

    def __init__(self, sweep_id: str, holder: Any) -> None:
        super().__init__(sweep_id, holder)
        self.sweep_id = sweep_id
        self.holder = holder

    def __str__(self) -> str:
        return one_line(
            f"sweep {self.sweep_id!r} is held by a live controller ({self.holder}); "
            "wait for it, cancel it, or take the sweep over"
        )


class ChampionKeptError(RaysweepError):
    """A champion, the one before it, or a candidate that waits has its checkpoint in this sweep."""

    def __init__(self, sweep_id: str, why: str) -> None:
        super().__init__(sweep_id, why)
        self.sweep_id = sweep_id
        self.why = why

    def __str__(self) -> str:
        return one_line(
            f"sweep {self.sweep_id!r} holds a checkpoint that is needed: {self.why}; "
            "use another key to begin anew, or wait until the next champions have replaced it"
        )


class GateOutdatedError(RaysweepError):
    """The best trial that a gate ran again is of an outcome that is not the sweep's newest."""

    retryable: ClassVar[bool] = True

    def __init__(self, sweep_id: str, ran: str) -> None:
        super().__init__(sweep_id, ran)
        self.sweep_id = sweep_id
        self.ran = ran

    def __str__(self) -> str:
        return one_line(
            f"{self.ran!r} ran for another outcome of sweep {self.sweep_id!r}, which has continued since; "
            "run the gate again: it judges what the sweep has now"
        )


class FencedError(RaysweepError):
    """This controller was superseded by a newer one and must stop without writing anything more."""

    def __init__(self, sweep_id: str, generation: int, by_generation: int) -> None:
        super().__init__(sweep_id, generation, by_generation)
        self.sweep_id = sweep_id
        self.generation = generation
        self.by_generation = by_generation

    def __str__(self) -> str:
        return (
            f"controller generation {self.generation} of sweep {self.sweep_id!r} was superseded by "
            f"generation {self.by_generation}; follow that one"
        )


class ProgramFailedError(RaysweepError):
    """The program of a command could not be started, or ended with an error.

    `output`: the last of what it wrote; `code`: its exit code, below 0 the signal that ended it; `origin`:
    what its failure counts as (see `core.vocabulary.failures`).
    """

    def __init__(
        self,
        message: str,
        output: str = "",
        code: int | None = None,
        origin: Literal["exception", "process", "memory", "gpu_memory"] = "exception",
    ) -> None:
        super().__init__(message, output, code, origin)
        self.message = message
        self.output = output
        self.code = code
        self.origin = origin

    def __str__(self) -> str:
        return one_line(self.message)


class Infeasible(RaysweepError):
    """Raised in a trainable: its config cannot work, and a rerun would not change that.

    The trial fails with the class `infeasible`: it is not retried, and `failure.breaker_trials` and
    `failure.max_failed_fraction` do not count it. Searches that learn then ask for fewer configs like it.

    Args:
        reason: Why, for a person: `needs 90 GB`.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return one_line(str(self.reason)) or "the config cannot work"


_CHARS: Final = 600
RETRY: Final = "with the cause fixed, it runs the failed trials again"
RESTART: Final = "it puts the sweep aside and begins anew"


class _OutcomeError(RaysweepError):
    """An outcome that its reader refused: `outcome`, whole. `note` is a text in place of its own."""

    noun: ClassVar[str] = "run"
    id_field: ClassVar[str] = "run_id"

    def __init__(self, outcome: Any, note: str = "") -> None:
        super().__init__(outcome, note)
        self.outcome = outcome
        self.note = note

    def __str__(self) -> str:
        if self.note:
            return one_line(self.note)
        error = getattr(self.outcome, "error", None)
        why = getattr(self.outcome, "why", "") or getattr(error, "message", "") or "no reason recorded"
        where = getattr(self.outcome, "uri", "")
        status = getattr(self.outcome, "status", "failed")
        text = f"{self.noun} {getattr(self.outcome, self.id_field, '?')!r} {status}: {why}"
        message = getattr(error, "message", "")
        if message and message not in text:
            text += f"; first error: {self._who()}{getattr(error, 'type', '')}: {message}"
            at = getattr(error, "where", "")
            text += f" (at {at})" if at else ""
        after = self._next()
        return one_line(f"{text}; see {where}" if where else text, max(200, _CHARS - len(after))) + after

    def _next(self) -> str:
        return ""

    def _who(self) -> str:
        trial = getattr(self.outcome, "first_failure", None)
        return f"trial {trial.trial_id}: " if trial is not None else ""


class SweepFailedError(_OutcomeError):
    """The sweep ended without a result that may be used; raised by `SweepOutcome.raise_for_status()`."""

    noun: ClassVar[str] = "sweep"
    id_field: ClassVar[str] = "sweep_id"

    def _next(self) -> str:
        """Both commands: the sweep is there, and another call with its key runs nothing."""
        name = getattr(self.outcome, "uri", "") or getattr(self.outcome, "sweep_id", "")
        if getattr(self.outcome, "status", "") != "failed":
            return ""
        name = shlex.quote(name)
        retry, restart = f"`raysweep retry {name}` (failed trials)", f"`raysweep restart {name}` (all)"
        return f"; fix the cause, then {retry} or {restart}"


class TrainingFailedError(_OutcomeError):
    """The training run failed; raised by `TrainOutcome.raise_for_status()`."""

    noun: ClassVar[str] = "training"


class SweepInterrupted(RaysweepError, KeyboardInterrupt):
    """Ctrl-C, or a request to end: the sweep stopped cleanly and can be resumed with the same key."""

    exit_code: ClassVar[int] = 3

    def __init__(self, sweep_id: str, note: str = "", so_far: str = "") -> None:
        super().__init__(sweep_id, note, so_far)
        self.sweep_id = sweep_id
        self.note = note
        self.so_far = so_far  # its results until then, the best trial above all

    def __str__(self) -> str:
        note = self.note or "run it again with the same key to resume it"
        parts = [f"sweep {self.sweep_id!r} was interrupted", self.so_far, note]
        return "; ".join(one_line(part) for part in parts if part)


class TrialStopped(BaseException):
    """Ends a trial: `raysweep.report` raises it, and `except Exception` in user code does not catch it."""

    def __init__(self, reason: str = "", message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason
