"""Differences of two specs of one sweep, and which of them do not mix two searches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

import orjson

from raysweep.documents.code.trainable import are_same
from raysweep.documents.json_values import leaves
from raysweep.documents.tuples import as_lists
from raysweep.documents.wall_clock import looks_like_wall_clock, next_time
from raysweep.space.parsed import is_domain
from raysweep.specs.sweep import SweepSpec

_ABSENT = object()
_ALWAYS_SAFE = ("max_concurrent_trials", "autoscaled", "share", "tags", "failure", "isolation")
# How checkpoints are moved, not which are kept.
_SAFE_FIELDS = (
    "stop.min_trials",
    "stop.budget_key",
    "checkpoint.storage_budget",
    "checkpoint.upload",
    "checkpoint.upload_limit",
    "checkpoint.on_damage",
    "resources.gpu_part",
    "evaluate.slots",
    "evaluate.tries",
    "evaluate.timeout_s",
    "evaluate.ahead",
)


@dataclass(frozen=True, slots=True)
class Changes:
    """One line for each difference: `num_samples: 10 -> 20`. `unsafe` ones would mix two searches."""

    safe: tuple[str, ...] = ()
    unsafe: tuple[str, ...] = ()
    moved: frozenset[str] = frozenset()
    """The fields of the safe ones, by their dotted paths."""

    def __bool__(self) -> bool:
        return bool(self.safe or self.unsafe)


def changes(old: SweepSpec, new: SweepSpec, scheduled_at: float | None = None) -> Changes:
    """The differences from `old` to `new`.

    A trainable is known by its name: whether its code is another is no matter here. Nor are the callbacks.
    Nor is the storage path: a store may have several names, and be moved. A search that `new` leaves open is
    as in `old`.
    Safe are: more samples (null is more than any number, and may come with a first limit), a later or no
    deadline, larger budgets or none, and any change of the concurrency, `autoscaled`, `share`, the isolation,
    the tags, the failure policy, `stop.min_trials`, how checkpoints are moved, or how much all of them may
    take up, and which part of this cluster's GPUs `gpu_memory` is (`_SAFE_FIELDS`).

    Args:
        old: The spec of the sweep as it is.
        new: The spec that is asked for.
        scheduled_at: When the sweep was scheduled, in UTC seconds: without it, a deadline that is a time of
            day cannot be compared with another, and its change is unsafe.
    """
    new = new.settled_by(old)
    safe: list[Difference] = []
    unsafe: list[Difference] = []
    is_opened = new.num_samples is None and old.num_samples is not None
    for each in differences(*(_with_kinds(spec, old, new) for spec in (old, new)), is_leaf=is_domain):
        if not _is_said_otherwise(each):
            (safe if is_safe(each, scheduled_at, is_opened=is_opened) else unsafe).append(each)
    moved = frozenset(each.field for each in safe)
    return Changes(tuple(map(str, safe)), tuple(map(str, unsafe)), moved)


@dataclass(frozen=True, slots=True)
class Difference:
    """One field, by its dotted path, that two specs do not agree on: `num_samples: 10 -> 20`."""

    field: str
    was: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.field}: {_shown(self.was)} -> {_shown(self.now)}"

    @classmethod
    def between(cls, field: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Self | None:
        """The difference of two mappings of values by path on this one; None: there is none."""
        was, now = before.get(field, _ABSENT), after.get(field, _ABSENT)
        return cls(field, was, now) if was != now else None


def differences(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    *,
    is_leaf: Callable[[Mapping[str, Any]], bool] = lambda _: False,
) -> Iterator[Difference]:
    """The differences in the data of two specs; an empty mapping is as good as none."""
    before, after = (
        {path: value for path, value in leaves(fields, is_leaf=is_leaf) if value != {}}
        for fields in (old, new)
    )
    for field in {**before, **after}:
        each = Difference.between(field, before, after)
        if each is not None:
            yield each


def _with_kinds(spec: SweepSpec, old: SweepSpec, new: SweepSpec) -> dict[str, Any]:
    """The spec's data; where the kinds of search or scheduler differ, only the kind's name."""
    fields = spec.to_dict() | {"search": spec.search.effective().model_dump(mode="json")}
    del fields["storage_path"]
    fields.pop("callbacks", None)
    for name in ("search", "scheduler"):
        if getattr(old, name).kind != getattr(new, name).kind:
            fields[name] = getattr(spec, name).kind
    return fields


def is_free(field: str) -> bool:
    """True if a field may change in any way."""
    return field.split(".")[0] in _ALWAYS_SAFE or field in _SAFE_FIELDS


def is_limit(field: str) -> bool:
    """True if a field is an amount: it may grow."""
    return field in ("num_samples", "stop.deadline", "stop.time_budget_s") or field.startswith("stop.budget.")


def is_safe(each: Difference, scheduled_at: float | None, *, is_opened: bool) -> bool:
    """True if a sweep may continue with this difference (see `changes`).

    Args:
        each: The difference.
        scheduled_at: As in `changes`.
        is_opened: Whether the new spec has no number of samples any more.
    """
    field, was, now = each.field, each.was, each.now
    if is_free(field):
        return True
    if field == "num_samples":
        return now is None or (was is not None and bool(now > was))
    if not is_limit(field):
        return False
    if was is None or was is _ABSENT:
        return is_opened  # who takes the number of samples away says what ends the sweep instead
    if now is None:
        return True
    if field == "stop.deadline":
        return _is_later(was, now, scheduled_at)
    return bool(now > was)


def _is_later(was: str, now: str, scheduled_at: float | None) -> bool:
    if scheduled_at is None and (looks_like_wall_clock(was) or looks_like_wall_clock(now)):
        return False
    before, after = (_moment(text, scheduled_at or 0.0) for text in (was, now))
    return after > before


def _moment(text: str, scheduled_at: float) -> datetime:
    if looks_like_wall_clock(text):
        return next_time(text, datetime.fromtimestamp(scheduled_at, UTC))
    return datetime.fromisoformat(text)


def _is_said_otherwise(each: Difference) -> bool:
    """True if both are the same in other words."""
    if each.field.startswith("param_space."):
        # A list in YAML is a tuple in Python.
        return bool(_without_tuples(each.was) == _without_tuples(each.now))
    # Only its name counts: a change of its code is noted (`specs.code_digest`), and never refused.
    is_both = isinstance(each.was, str) and isinstance(each.now, str)
    return each.field == "trainable" and is_both and are_same(each.was, each.now)


def _without_tuples(value: Any) -> Any:
    is_const = isinstance(value, dict) and value.keys() == {"const"}
    return as_lists(value["const"] if is_const else value)


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "(absent)"
    text = orjson.dumps(value).decode()
    pretty = text if not isinstance(value, dict | list) else _spaced(value)
    return pretty if len(pretty) <= 120 else pretty[:119] + "…"


def _spaced(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)
