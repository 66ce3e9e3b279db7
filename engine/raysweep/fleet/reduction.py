"""The reports of a gang's ranks as one: those of the same number are reduced, and said as rank 0's.

Rules:

1. Report `i` of the gang is said once every rank has made its report `i`. Nothing is waited for elsewhere:
   reports travel as those of any trial, and ranks continue meanwhile.
2. What rank 0 says of its checkpoints keeps its place among the reports: a checkpoint is said after the
   report that it belongs to, with the score of the reduced one.
3. All ranks report equally often, and the same names of what is reduced. Where they do not, `problem` says
   how, and nothing more is said.
4. The result depends on nothing but the values: not on their order of arrival, nor on the ranks' order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import fsum, inf, isfinite, isinf, isnan, nan
from typing import Final

from pydantic import JsonValue

from raysweep import messages as msg
from raysweep.core.views.scores import as_number
from raysweep.core.vocabulary.events import Row
from raysweep.specs import SweepSpec
from raysweep.specs.trial.scaling import Reduction

AHEAD: Final = 1_000_000
"""The most reports that one rank may be ahead of another: waiting reports are bounded. Far more than lies
on the way where ranks go at the same pace, in links, sockets, and what is read of them at once."""
_FIX: Final = "or remove scaling.metrics: then those of rank 0 count"
_NOT_FINITE: Final = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}
_MIN_INT: Final = -(2**63)
_MAX_INT: Final = 2**64 - 1

Number = int | float
Keys = tuple[str, ...]
Scores = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The reduction of each metric: `by_name`, else by `default`.

    `metric` and `ranks_by`: the metrics whose values checkpoints carry (see `messages.CheckpointCommitted`).
    """

    default: Reduction = "rank0"
    by_name: tuple[tuple[str, Reduction], ...] = ()
    metric: str = ""
    ranks_by: str = ""

    @classmethod
    def of(cls, spec: SweepSpec, ranks_by: str) -> Rule | None:
        """That of a spec; None: rank 0's reports count."""
        metrics = spec.scaling.metrics if spec.scaling is not None else "rank0"
        if metrics == "rank0":
            return None
        if isinstance(metrics, str):
            return cls(default=metrics, metric=spec.metric, ranks_by=ranks_by)
        return cls(by_name=tuple(metrics.items()), metric=spec.metric, ranks_by=ranks_by)


@dataclass(frozen=True, slots=True)
class _Column:
    """A metric that is reduced: its places in the rows, by rank. `is_named`: the spec names it."""

    name: str
    how: Reduction
    places: tuple[int, ...]
    is_named: bool


@dataclass(frozen=True, slots=True)
class _Plan:
    """The reduction of rows with these keys, by rank, to one with the keys `made`."""

    keys: tuple[Keys, ...]
    columns: tuple[_Column, ...]
    made: Keys


class _Difference(Exception):
    """The ranks' reports do not go together."""


class GangReports:
    """Those of one attempt."""

    def __init__(self, rule: Rule, world_size: int) -> None:
        self.problem = ""
        """The reason why they cannot be reduced; empty: they can."""
        self._rule = rule
        self._by_name = dict(rule.by_name)
        self._made = [0] * world_size
        self._returned: set[int] = set()
        # Of the others, what rank 0 has not come to; of rank 0, what the others have not come to.
        self._others: list[deque[tuple[Keys, Row]]] = [deque() for _ in range(world_size - 1)]
        self._held: deque[msg.FromWorker] = deque()
        self._taken = 0  # rows of the first that is held
        self._plan: _Plan | None = None
        self._last: Scores = (None, None)
        self._upcoming: dict[int, Scores] = {}

    def take(self, rank: int, message: msg.FromWorker) -> Iterator[msg.FromWorker]:
        """A rank says this; what the gang says by now."""
        if self.problem:
            return
        if isinstance(message, msg.TrialReported):
            self._made[rank] += len(message.rows)
            if rank:
                self._others[rank - 1].extend((message.keys, row) for row in message.rows)
        if not rank:
            self._held.append(message)
        try:
            yield from self._release()
            self._compare()
        except _Difference as difference:
            self.problem = str(difference)

    def returned(self, rank: int) -> None:
        """A rank makes no more reports."""
        self._returned.add(rank)
        try:
            self._compare()
        except _Difference as difference:
            self.problem = self.problem or str(difference)

    def _compare(self) -> None:
        most = max(range(len(self._made)), key=self._made.__getitem__)
        done = min(self._returned, key=self._made.__getitem__, default=most)
        if self._made[most] > self._made[done]:
            raise _Difference(
                f"rank {done} returned after {_reports(self._made[done])}, and rank {most} has made"
                f" {self._made[most]}: report equally often in every rank, {_FIX}"
            )
        least = min(range(len(self._made)), key=self._made.__getitem__)
        if self._made[most] > self._made[least] + AHEAD:
            raise _Difference(
                f"rank {most} has made {_reports(self._made[most])}, and rank {least} {self._made[least]}:"
                f" report equally often in every rank, {_FIX}"
            )

    def _release(self) -> Iterator[msg.FromWorker]:
        """Release the held messages, as far as those of the others have come."""
        while self._held:
            match self._held[0]:
                case msg.TrialReported() as rows:
                    yield from self._reduce(rows)
                    if self._taken < len(rows.rows):
                        return
                    self._taken = 0
                case msg.Upcoming(report=report):
                    self._upcoming[report] = self._last
                case msg.CheckpointCommitted() as saved:
                    yield self._scored(saved)
                case message:
                    yield message
            self._held.popleft()

    def _scored(self, saved: msg.CheckpointCommitted) -> msg.CheckpointCommitted:
        score, rank = self._upcoming.get(saved.report, (None, None))
        # They are stored in order: the ones before were overtaken.
        self._upcoming = {report: each for report, each in self._upcoming.items() if report > saved.report}
        number, report, uri, size_bytes = saved.number, saved.report, saved.uri, saved.size_bytes
        return msg.CheckpointCommitted(*saved.who, number, report, uri, size_bytes, score, rank)

    def _reduce(self, rows: msg.TrialReported) -> Iterator[msg.TrialReported]:
        """As many of these as the others have."""
        first = self._taken
        last = min([len(rows.rows), *(first + len(other) for other in self._others)])
        made: list[Row] = []
        keys: Keys = rows.keys
        for place in range(first, last):
            # The keys are the same for all of them: what the others report beside those of rank 0 is refused.
            keys, row = self._reduce_one(rows.first + place, rows.keys, rows.rows[place])
            made.append(row)
        self._taken = last
        is_waiting = rows.is_waiting and last == len(rows.rows)
        if made or is_waiting:
            yield msg.TrialReported(*rows.who, rows.first + first, keys, made, is_waiting)

    def _reduce_one(self, number: int, keys: Keys, row: Row) -> tuple[Keys, Row]:
        others = [other.popleft() for other in self._others]
        all_keys = (keys, *(other for other, _ in others))
        if self._plan is None or self._plan.keys != all_keys:
            self._plan = self._make_plan(number, all_keys)
        plan = self._plan
        ranks = (row, *(other for _, other in others))
        made = list(row)
        for column in plan.columns:
            values = [each[place] for each, place in zip(ranks, column.places, strict=True)]
            if column.how == "each":
                made.extend(values[1:])
            else:
                made[column.places[0]] = _reduced(number, column, values)
        rule = self._rule
        self._last = _score(plan.made, made, rule.metric), _score(plan.made, made, rule.ranks_by)
        return plan.made, made

    def _make_plan(self, number: int, all_keys: tuple[Keys, ...]) -> _Plan:
        columns: list[_Column] = []
        made = list(all_keys[0])
        for name in dict.fromkeys(name for keys in all_keys for name in keys):
            how = self._by_name.get(name, self._rule.default)
            if how == "rank0":
                continue
            for rank, keys in enumerate(all_keys):
                if name not in keys:
                    has = next(other for other, found in enumerate(all_keys) if name in found)
                    raise _Difference(
                        f"in report {number + 1}, rank {has} has {name!r} and rank {rank} has not:"
                        f" report it in every rank, or name in scaling.metrics only what all of them report"
                    )
            places = tuple(keys.index(name) for keys in all_keys)
            columns.append(_Column(name, how, places, name in self._by_name))
            if how == "each":
                made += [f"{name}/rank{rank}" for rank in range(1, len(all_keys))]
        if len(set(made)) < len(made):
            double = next(name for name in made if made.count(name) > 1)
            raise _Difference(
                f"{double!r} has the name that scaling.metrics gives to another rank's metric: rename it"
            )
        return _Plan(all_keys, tuple(columns), tuple(made))


def _score(keys: Keys, row: Row, name: str) -> float | None:
    return as_number(row[keys.index(name)]) if name and name in keys else None


def _reduced(number: int, column: _Column, values: Sequence[JsonValue]) -> JsonValue:
    numbers = [_number(value) for value in values]
    found = [each for each in numbers if each is not None]
    if len(found) == len(values):
        return _as_json(_combine(column.how, found))
    if not column.is_named and not found:
        return values[0]  # a name, or a list: rank 0's
    rank = numbers.index(None)
    raise _Difference(
        f"in report {number + 1}, {column.name!r} of rank {rank} is {_show(values[rank])}, which is not"
        f" a number: report a number in every rank, or leave {column.name!r} out of scaling.metrics"
    )


def _combine(how: Reduction, values: Sequence[Number]) -> Number:
    if any(isnan(value) for value in values):
        return nan
    if how == "max":
        return max(values)
    if how == "min":
        return min(values)
    if how == "mean" and min(values) == max(values):
        return values[0]
    return _total(values, len(values) if how == "mean" else 1)


def _total(values: Sequence[Number], parts: int) -> Number:
    """Their sum divided by `parts`: exact but for one rounding, whatever their order."""
    whole = [value for value in values if isinstance(value, int)]
    if len(whole) == len(values):
        return sum(whole) if parts == 1 else sum(whole) / parts
    try:
        return fsum(values) / parts
    except ValueError:  # infinities of both signs
        return nan
    except OverflowError:
        return sum(sorted(value / parts for value in values))


def _number(value: JsonValue) -> Number | None:
    if isinstance(value, str):
        return _NOT_FINITE.get(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _as_json(value: Number) -> JsonValue:
    if isinstance(value, int):
        return value if _MIN_INT <= value <= _MAX_INT else float(value)
    if isfinite(value):
        return value
    return ("Infinity" if value > 0 else "-Infinity") if isinf(value) else "NaN"


def _show(value: JsonValue) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _reports(count: int) -> str:
    return f"{count or 'no'} report{'s' * (count != 1)}"
