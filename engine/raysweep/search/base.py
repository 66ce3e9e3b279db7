"""The interface of a searcher: asked for configs by number, it receives their results."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random
from typing import Any, Literal

from raysweep.schedulers.base import PolicySetup
from raysweep.schedulers.spec import SchedulerSpec
from raysweep.space.parsed import Space
from raysweep.space.unfolding import Unfolding

TrialEnd = Literal["completed", "stopped", "failed", "paused"]
"""The end of a trial: by itself, by an early-stopping decision, or without a usable result.

`paused`: its scheduler keeps it back, and it may continue; what comes later takes the place of this. A class
of the user's own is not told of it.
"""


End = TrialEnd | Literal["infeasible"]
"""The same, with `infeasible`, a trial that failed by its config."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSetup(PolicySetup):
    """The facts that a searcher is made from, beside its options; made anew at each resume.

    `constraints`: what results have to satisfy, as the spec has it; see `Searcher.tell_result`.
    `scheduler`: which decides about the trials.
    """

    num_samples: int | None
    """The number of configs; None: as many as are asked for."""
    constraints: tuple[str, ...] = ()
    scheduler: SchedulerSpec = field(default_factory=SchedulerSpec)

    @property
    def model_space(self) -> Space:
        """`space` with n - 1 coordinates in place of each simplex of n parts: see `Unfolding`."""
        return Unfolding(self.space).space


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a trial: its value, and its distance from satisfying each constraint (<= 0: it does).

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
        """True if it has nothing but its value."""
        return not (self.violations or self.others) and self.cost is None and self.spread is None

    @property
    def penalty(self) -> float:
        """Its distance from satisfying all of them; 0: it does."""
        return sum(max(each, 0.0) for each in self.violations)


def result_of(
    value: float | None,
    violations: tuple[float, ...] = (),
    others: tuple[float, ...] = (),
    cost: float | None = None,
) -> Result | None:
    """Return the result of a trial; None of one without a value."""
    return None if value is None else Result(value, violations, others, cost)


class Searcher:
    """Suggests configs: the base of every searcher. Asked for 0, 1, 2, … in this order.

    `ask(n)` is a function of the spec, the seed, n and what was asked, restored and told before: a
    searcher that is rebuilt by `restore` and `tell` continues as the one that was never interrupted. An ask
    that raises has changed nothing. Every method but `ask` does nothing, or what is said
    there. A subclass may have properties in place of the attributes.
    """

    total: int | None = None
    """The number of configs that there will be; None where that is not known."""
    is_adaptive: bool = False
    """True if asks depend on tells (then asking far ahead costs quality)."""
    note: str | None = None
    """One line for the user where fewer configs exist than were asked for."""
    substitution: str | None = None
    """One line for the user: what it does in place of what was asked for, and why."""

    @property
    def judges(self) -> bool:
        """True if it uses all that a result has: see `tell_result`."""
        return type(self).tell_result is not Searcher.tell_result

    @property
    def knows_givens(self) -> bool:
        """True if it treats configs that it did not suggest in another way: see `take_given`."""
        return type(self).take_given is not Searcher.take_given

    def ask(self, number: int) -> dict[str, Any] | None:
        """Return the config of trial `number`; None if there are no more."""
        raise NotImplementedError

    def restore(self, number: int, config: dict[str, Any]) -> None:
        """Take note of a config that an earlier run asked for. Samples nothing.

        Of a config that could not be made (a function of the user raised), this is what had been drawn.
        """

    def replay_failed(self, number: int) -> None:
        """The same where an ask raised and gave nothing at all: one that draws in order raises once more."""

    def take_given(self, number: int, config: dict[str, Any]) -> None:
        """Take note of a config that it did not suggest: a point, a champion's, an anchor's.

        Called in place of `ask` for this number, and again in place of `restore` when it is rebuilt. It is
        restored unless this is overridden.
        """
        self.restore(number, config)

    def tell(self, number: int, value: float | None, state: TrialEnd) -> None:
        """Report how a trial ended. `value` is the raw metric; None if it never reported."""

    def tell_result(self, number: int, result: Result, state: TrialEnd) -> None:
        """The same of a trial with a value, where there is more to say: constraints, several metrics, a cost,
        the spread of repeats. Unless this is overridden, it is told as failed where it breaks a constraint,
        and else the first metric.
        """
        if result.penalty:
            self.tell(number, None, "failed")
        else:
            self.tell(number, result.value, state)

    def tell_infeasible(self, number: int) -> None:
        """Report a trial that failed by its config, near to which others would fail, too.

        That is one that ran out of memory or needs what no node has, whose metric was not finite, whose code
        failed in its retry as well, or that raised `raysweep.Infeasible`. It is told as failed unless this is
        overridden.
        """
        self.tell(number, None, "failed")

    def tell_rung(self, number: int, time: float, value: float) -> None:
        """Report what a trial had reached at a time (of the scheduler's `time_attr`), before its end."""

    def tell_earlier(self, config: dict[str, Any], value: float) -> None:
        """Report a trial of an earlier sweep, before the first ask. Its config fits the space."""

    def tell_earlier_result(self, config: dict[str, Any], result: Result) -> None:
        """The same where there is more to say; one that breaks a constraint is left out if not overridden."""
        if not result.penalty:
            self.tell_earlier(config, result.value)

    def take_remark(self) -> str | None:
        """Return one line for the user, once; None where there is none. A rebuilt one says it again."""
        return None


def tell_end(searcher: Searcher, number: int, result: Result | None, *, state: End) -> None:
    """Tell a searcher how a trial ended.

    Args:
        searcher: who is told.
        number: the trial's.
        result: what it gave; None if it never reported.
        state: how it ended.
    """
    if state == "infeasible":
        searcher.tell_infeasible(number)
    elif result is None:
        searcher.tell(number, None, state)
    elif result.is_plain:
        searcher.tell(number, result.value, state)
    else:
        searcher.tell_result(number, result, state)


def tell_earlier(searcher: Searcher, config: dict[str, Any], result: Result) -> None:
    """Tell a searcher of a trial of an earlier sweep, before the first ask; see `tell_end`."""
    if result.is_plain:
        searcher.tell_earlier(config, result.value)
    else:
        searcher.tell_earlier_result(config, result)


def derived_seed(seed: int, number: int, attempt: int = 0) -> int:
    """Return 64 bits that depend on all three numbers and on nothing else."""
    return int.from_bytes(blake2b(f"{seed}:{number}:{attempt}".encode(), digest_size=8).digest(), "big")


def derived_rng(seed: int, number: int) -> Random:
    """Return the random generator of one ask."""
    return Random(derived_seed(seed, number))
