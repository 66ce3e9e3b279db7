"""The trials of a sweep as a sequence that makes each trial when it is asked for.

100,000 trials as Python objects take 8 kB each; as the JSON text that is stored, less than 1 kB. So the
sequence holds that text. What looks at every trial (ranking, counting) reads `rows()`, which decode only the
few fields that it needs.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Self, overload

import orjson
from msgspec import Raw, Struct, field
from msgspec.json import Decoder
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from raysweep.documents.json_numbers import without_names
from raysweep.documents.stored_paths import to_reference, to_uri
from raysweep.documents.tuples import Tuples
from raysweep.outcome.trial import TrialOutcome
from raysweep.outcome.trial_places import fields_with, trial_with
from raysweep.outcome.tupled import with_tuples_in

SEPARATOR: Final = b",\n"
"""Between two trials. JSON has no line break within a text, so each trial is a line of its own."""


class AttemptRow(Struct, frozen=True, kw_only=True):
    """The times of one attempt, in UTC seconds."""

    started_at: float
    ended_at: float | None = None

    @property
    def took_s(self) -> float | None:
        """The time that it ran, in seconds; None before its end."""
        return None if self.ended_at is None else self.ended_at - self.started_at


class TrialRow(Struct, frozen=True, kw_only=True):
    """The fields that rank and count a trial; they mean the same as those of `TrialOutcome`."""

    trial_id: str
    state: str
    ended_at: float | None = None
    attempts: list[AttemptRow] = []
    larger_scales: int = 0
    stored_score: float | str | None = field(default=None, name="score")
    stored_metrics: Raw = field(default=Raw(b"{}"), name="metrics")
    stored_violations: dict[str, float | str | None] = field(default_factory=dict, name="violations")

    @property
    def score(self) -> float | None:
        """The metric that ranks the trial."""
        found: float | None = without_names(self.stored_score)
        return found

    @property
    def metrics(self) -> dict[str, Any]:
        """The last report."""
        found: dict[str, Any] = without_names(orjson.loads(memoryview(self.stored_metrics)))
        return found

    @property
    def is_feasible(self) -> bool:
        """True if it satisfies all constraints."""
        return not self.stored_violations or self.violation == 0.0

    @property
    def violation(self) -> float:
        """Distance from satisfying all of them; infinite: it cannot be told."""
        if not self.stored_violations:
            return 0.0
        far = map(without_names, self.stored_violations.values())
        return sum(math.inf if each is None else max(each, 0.0) for each in far)


class Trials(Sequence[TrialOutcome]):
    """Trials by number. Each access makes the trial anew: two are equal, and not the same object.

    Args:
        records: Trials to hold as they are. `packed` and `stored` hold text.
    """

    __slots__ = ("_base", "_data", "_records", "_starts", "_tuples")

    def __init__(self, records: Iterable[TrialOutcome] = ()) -> None:
        self._records: tuple[TrialOutcome, ...] | None = tuple(records)
        self._data: bytes | bytearray = b""
        self._starts = array("Q")
        self._base = ""
        self._tuples: Tuples = ()

    @classmethod
    def packed(cls, trials: Iterable[TrialOutcome], base: str) -> Self:
        """Hold trials as text, with what they name below `base` relative to it. Takes them one by one."""
        if isinstance(trials, cls) and trials._records is None and trials._base == base:
            return trials
        change, lines = partial(to_reference, base), bytearray()
        for trial in trials:
            if lines:
                lines += SEPARATOR
            lines += orjson.dumps(trial_with(trial, change).model_dump(mode="json"))
        return cls.stored(lines, base, 0, len(lines))

    @classmethod
    def stored(cls, data: bytes | bytearray, base: str, start: int, end: int) -> Self:
        """The trials that `packed` wrote, which are `data[start:end]`: held, not copied."""
        self = cls()
        self._records, self._data, self._base = None, data, base
        self._starts = _starts_of(data, start, end)
        return self

    @property
    def text(self) -> memoryview:
        """The trials as JSON, separated by SEPARATOR; only of those that are packed."""
        start, end = (self._starts[0], self._starts[-1] - len(SEPARATOR)) if self._starts else (0, 0)
        return memoryview(self._data)[start:end]

    def to_json(self) -> bytes:
        """A JSON list of them. Those that are held as text are not made: only their places are changed."""
        if self._records is not None:
            return orjson.dumps([trial.model_dump(mode="json") for trial in self._records])
        change = partial(to_uri, self._base)
        return orjson.dumps([fields_with(orjson.loads(line), change) for line in self._lines()])

    def with_tuples(self, tuples: Tuples) -> Trials:
        """The same, with tuples in their configs."""
        if self._records is not None:
            return Trials(with_tuples_in(self._records, tuples))
        found = Trials()
        found._records, found._data, found._base = None, self._data, self._base
        found._starts, found._tuples = self._starts, tuples
        return found

    def rows(self) -> Iterator[TrialRow | TrialOutcome]:
        """The rows that rank and count each trial, in order: a tenth of the time that the trials take."""
        if self._records is not None:
            return iter(self._records)
        return map(Decoder(TrialRow).decode, self._lines())

    def __len__(self) -> int:
        return len(self._records) if self._records is not None else max(len(self._starts) - 1, 0)

    @overload
    def __getitem__(self, index: int) -> TrialOutcome: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[TrialOutcome, ...]: ...
    def __getitem__(self, index: int | slice) -> TrialOutcome | tuple[TrialOutcome, ...]:
        if self._records is not None:
            return self._records[index]
        if isinstance(index, slice):
            return tuple(self._made(place) for place in range(*index.indices(len(self))))
        place = range(len(self))[index]
        return self._made(place)

    def __iter__(self) -> Iterator[TrialOutcome]:
        return iter(self._records) if self._records is not None else map(self._made, range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trials | tuple | list):
            return NotImplemented
        if isinstance(other, Trials) and self._is_same_text(other):
            return True
        return len(self) == len(other) and all(
            mine == theirs for mine, theirs in zip(self, other, strict=True)
        )

    __hash__ = None  # type: ignore[assignment]  # as that of the trials, which hold dicts

    def __repr__(self) -> str:
        return f"<{len(self)} trials>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._records is not None:
            return Trials, (self._records,)
        return _unpickled, (bytes(self.text), self._base, self._tuples)

    def _is_same_text(self, other: Trials) -> bool:
        same = self._records is None and other._records is None and self._base == other._base
        return same and self._tuples == other._tuples and self.text == other.text

    def _made(self, place: int) -> TrialOutcome:
        trial = TrialOutcome.model_validate(orjson.loads(self._line(place)))
        trial = trial_with(trial, partial(to_uri, self._base))
        made: TrialOutcome = with_tuples_in(trial, self._tuples) if self._tuples else trial
        return made

    def _line(self, place: int) -> memoryview:
        end = self._starts[place + 1] - len(SEPARATOR)
        return memoryview(self._data)[self._starts[place] : end]

    def _lines(self) -> Iterator[memoryview]:
        return map(self._line, range(len(self)))


class TrialsOf:
    """Validates and dumps a record's field of trials."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def take(value: Any, inner: core_schema.ValidatorFunctionWrapHandler) -> Trials:
            return value if isinstance(value, Trials) else Trials(inner(value))

        schema = handler.generate_schema(tuple[TrialOutcome, ...])
        return core_schema.no_info_wrap_validator_function(
            take, schema, serialization=core_schema.plain_serializer_function_ser_schema(_dump, info_arg=True)
        )


def rows_of(trials: Sequence[TrialOutcome]) -> Iterator[TrialRow | TrialOutcome]:
    """The rows that rank and count each of some trials, in order."""
    return trials.rows() if isinstance(trials, Trials) else iter(trials)


def _dump(trials: Sequence[TrialOutcome], info: core_schema.SerializationInfo) -> list[dict[str, Any]]:
    mode = "json" if info.mode == "json" else "python"
    return [trial.model_dump(mode=mode) for trial in trials]


def _unpickled(text: bytes, base: str, tuples: Tuples) -> Trials:
    return Trials.stored(text, base, 0, len(text)).with_tuples(tuples)


def _starts_of(data: bytes | bytearray, start: int, end: int) -> array[int]:
    """The start of each trial, and that of one behind the last one."""
    starts = array("Q")
    if start < end:
        starts.append(start)
        while (found := data.find(SEPARATOR, starts[-1], end)) >= 0:
            starts.append(found + len(SEPARATOR))
        starts.append(end + len(SEPARATOR))
    return starts
