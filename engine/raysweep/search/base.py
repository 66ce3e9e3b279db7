"""What a searcher is: asked for configs by number, told how they did."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random
from typing import Any, Literal, Protocol, runtime_checkable

from raysweep.schedulers.base import PolicySetup
from raysweep.schedulers.spec import SchedulerSpec
from raysweep.space.parsed import Space
from raysweep.space.unfolding import Unfolding

TrialEnd = Literal["completed", "stopped", "failed", "paused"]
"""How a trial ended: by itself, by an early-stopping decision, or without a usable result.

`paused`: its scheduler keeps it back, and it may continue; what comes later takes the place of this. A class
of the user's own is not told of it.
"""


End = TrialEnd | Literal["infeasible"]
"""The same, with what `Avoiding` searchers receive: `infeasible`, a trial that failed by its config."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSetup(PolicySetup):
    """What a searcher is made from, beside its options; made anew at each resume, with what is asked then.

    `constraints`: what results have to satisfy, as the spec has it. See `Judging` for these and `modes`.
    `scheduler`: which decides about the trials.
    """

    num_samples: int | None
    """How many configs; None: as many as are asked for."""
    constraints: tuple[str, ...] = ()
    scheduler: SchedulerSpec = field(default_factory=SchedulerSpec)

    @property
    def model_space(self) -> Space:
        """`space` with n - 1 coordinates in place of each simplex of n parts: see `Unfolding`."""
        return Unfolding(self.space).space


@dataclass(frozen=True, slots=True)
class Result:
    """What a trial gave: its value, and how far it is from satisfying each constraint (<= 0: it does).

    `others`: its values of the metrics after the first. `cost`: what it took, where the search asks for that.
    `spread`: of a config that ran several times, whose mean is `value`, the standard deviation of the repeats
    that completed, as of a sample; None where it ran once, or one of them completed.
    """

    value: float
    violations: tuple[float, ...] = ()
    others: tuple[float, ...] = ()
    cost: float | None = None
    spread: float | None = None

    @property
    def values(self) -> tuple[float, ...]:
        """Of all metrics."""
        return self.value, *self.others

    @property
    def is_plain(self) -> bool:
        """Whether its value is all that there is to tell."""
        return not (self.violations or self.others) and self.cost is None and self.spread is None

    @property
    def penalty(self) -> float:
        """How far it is from satisfying all of them; 0: it does."""
        return sum(max(each, 0.0) for each in self.violations)


def result_of(
    value: float | None,
    violations: tuple[float, ...] = (),
    others: tuple[float, ...] = (),
    cost: float | None = None,
) -> Result | None:
    """Return the result of a trial; None of one without a value."""
    return None if value is None else Result(value, violations, others, cost)


class Searcher(Protocol):
    """Suggests configs. Asked for 0, 1, 2, … in this order.

    `ask(n)` is a function of the spec, the seed, n and what was asked, restored and told before: a
    searcher that is rebuilt by `restore` and `tell` continues as the one that was never interrupted. An ask
    that raises has changed nothing.
    """

    @property
    def total(self) -> int | None:
        """How many configs there will be; None where that is not known."""
        ...

    @property
    def is_adaptive(self) -> bool:
        """Whether asks depend on tells (then asking far ahead costs quality)."""
        ...

    @property
    def note(self) -> str | None:
        """One line for the user where fewer configs exist than were asked for."""
        ...

    def ask(self, number: int) -> dict[str, Any] | None:
        """Return the config of trial `number`; None if there are no more."""
        ...

    def restore(self, number: int, config: dict[str, Any]) -> None:
        """Take note of a config that an earlier run asked for. Samples nothing.

        Of a config that could not be made (a function of the user raised), this is what had been drawn.
        """
        ...

    def tell(self, number: int, value: float | None, state: TrialEnd) -> None:
        """Report how a trial ended. `value` is the raw metric; None if it never reported."""
        ...

    def tell_earlier(self, config: dict[str, Any], value: float) -> None:
        """Report a trial of an earlier sweep, before the first ask. Its config fits the space."""
        ...


@runtime_checkable
class Judging(Protocol):
    """A searcher that knows constraints, several metrics, costs and the spread of repeats.

    Any other is told that a trial which breaks a constraint has failed, and of several metrics the first.
    """

    def tell_result(self, number: int, result: Result, state: TrialEnd) -> None:
        """Report how a trial with a value ended, in place of `tell`, where there is more to say."""
        ...

    def tell_earlier_result(self, config: dict[str, Any], result: Result) -> None:
        """The same in place of `tell_earlier`."""
        ...


@runtime_checkable
class Avoiding(Protocol):
    """A searcher that learns from trials that failed by their config: others near to it would fail, too.

    Any other is told that the trial has failed.
    """

    def tell_infeasible(self, number: int) -> None:
        """Report a trial that failed by its config, in place of `tell`.

        That is one that ran out of memory or needs what no node has, whose metric was not finite, whose code
        failed in its retry as well, or that raised `raysweep.Infeasible`.
        """
        ...


def tell_end(searcher: Searcher, number: int, result: Result | None, *, state: End) -> None:
    """Tell a searcher how a trial ended, as much of it as it wants to know.

    Args:
        searcher: who is told.
        number: the trial's.
        result: what it gave; None if it never reported.
        state: how it ended.
    """
    if state == "infeasible":
        if isinstance(searcher, Avoiding):
            searcher.tell_infeasible(number)
            return
        state = "failed"
    if result is None:
        searcher.tell(number, None, state)
    elif not result.is_plain and isinstance(searcher, Judging):
        searcher.tell_result(number, result, state)
    elif result.penalty:
        searcher.tell(number, None, "failed")
    else:
        searcher.tell(number, result.value, state)


def tell_earlier(searcher: Searcher, config: dict[str, Any], result: Result) -> None:
    """Tell a searcher of a trial of an earlier sweep, before the first ask; see `tell_end`."""
    if not result.is_plain and isinstance(searcher, Judging):
        searcher.tell_earlier_result(config, result)
    elif not result.penalty:
        searcher.tell_earlier(config, result.value)


@runtime_checkable
class Following(Protocol):
    """A searcher that learns from trials on the way: told whenever the scheduler compares one."""

    def tell_rung(self, number: int, time: float, value: float) -> None:
        """Report what a trial had reached at a time (of the scheduler's `time_attr`), before its end."""
        ...


def tell_rung(searcher: Searcher, number: int, time: float, value: float) -> None:
    """Tell a searcher what a trial had reached, if it wants to know."""
    if isinstance(searcher, Following):
        searcher.tell_rung(number, time, value)


@runtime_checkable
class Adopter(Protocol):
    """A searcher to which it makes a difference whether a config is its own suggestion.

    Any other receives both by `restore`.
    """

    def take_given(self, number: int, config: dict[str, Any]) -> None:
        """Take note of a config that it did not suggest: a point, a champion's, an anchor's.

        Called in place of `ask` for this number, and again in place of `restore` when it is rebuilt.
        """
        ...


def take_given(searcher: Searcher, number: int, config: dict[str, Any]) -> None:
    """Have a searcher take note of a config that it did not suggest, as trial `number`."""
    if isinstance(searcher, Adopter):
        searcher.take_given(number, config)
    else:
        searcher.restore(number, config)


@runtime_checkable
class Replaying(Protocol):
    """A searcher that is asked again when it is rebuilt, also for what it could not give."""

    def replay_failed(self, number: int) -> None:
        """Have it fail once more, in place of `restore`, where an ask gave nothing at all."""
        ...


def replay_failed(searcher: Searcher, number: int) -> None:
    """Let a rebuilt searcher know of an ask that raised, if that may have changed anything in it."""
    if isinstance(searcher, Replaying):
        searcher.replay_failed(number)


@runtime_checkable
class Substituting(Protocol):
    """A searcher that may do something else than what was asked for, with a note."""

    @property
    def substitution(self) -> str | None:
        """One line for the user: what takes the place of what, and why; None where nothing does."""
        ...


def substitution_of(searcher: Searcher) -> str | None:
    """Return what a searcher says that it does instead; None of one that says nothing."""
    return searcher.substitution if isinstance(searcher, Substituting) else None


@runtime_checkable
class Remarking(Protocol):
    """A searcher that has something to say in the middle of a sweep."""

    def take_remark(self) -> str | None:
        """Return one line for the user, once; None where there is none. A rebuilt one says it again."""
        ...


def take_remark(searcher: Searcher) -> str | None:
    """Return what a searcher has to say now; None of one that never does."""
    return searcher.take_remark() if isinstance(searcher, Remarking) else None


def derived_seed(seed: int, number: int, attempt: int = 0) -> int:
    """Return 64 bits that depend on all three numbers and on nothing else."""
    return int.from_bytes(blake2b(f"{seed}:{number}:{attempt}".encode(), digest_size=8).digest(), "big")


def derived_rng(seed: int, number: int) -> Random:
    """Return the random generator of one ask."""
    return Random(derived_seed(seed, number))
