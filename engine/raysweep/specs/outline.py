"""The outline of a spec: what a second run of the same key must share, small enough for a job's metadata.

A job is submitted minutes before its driver writes the spec to the storage. Until then another caller can
compare its own spec with nothing but the outline. `outline_changes` decides as `changes` does: an outline has
the values of what `changes` compares by size (samples, deadlines, budgets), the search and the trainable's
name, and digests of all other fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from raysweep.documents.code.trainable import are_same
from raysweep.documents.digest import digest_of
from raysweep.documents.json_values import leaves
from raysweep.search.random_then_auto import LEFT_OPEN
from raysweep.search.spec import SearchSpec
from raysweep.space.parsed import is_domain
from raysweep.specs.bridge import as_asked
from raysweep.specs.changes import Changes, Difference, is_free, is_limit, is_safe
from raysweep.specs.sweep import SweepSpec
from raysweep.specs.train import TrainSpec

MAX_CHARS: Final = 4096
"""An outline with digests of single parameters may be so long; a longer one has digests of whole fields."""
_FREE_OF_TRAININGS: Final = frozenset({"failure", "stop", "tags"})
_DIGITS: Final = 12

Outline = Mapping[str, Any]
"""Plain JSON: `trainable`; `fields`, digests by path; `whole`, whether the paths are those of whole fields;
`limits`, values by path. Of a sweep also `search`, its kind and options, and `open`, what of it is left open.
"""


def outline(spec: SweepSpec | TrainSpec) -> Outline:
    """The outline of a spec; equal specs have equal ones. The storage path is not part of it."""
    fields = dict(as_asked(spec.to_dict()))
    fields.pop("callbacks", None)
    parts: dict[str, Any] = {
        "trainable": fields.pop("trainable", ""),
        "fields": {},
        "whole": False,
        "limits": {},
    }
    is_sweep = isinstance(spec, SweepSpec)
    if isinstance(spec, SweepSpec):
        fields.pop("search", None)
        parts |= _search(spec.search)
    for path, value in leaves(fields, is_leaf=is_domain):
        # An empty mapping says nothing, but for a scheduler without options.
        if (value == {} and not path.startswith("scheduler.")) or path == "storage_path":
            continue
        if is_sweep and is_limit(path):
            parts["limits"][path] = value
        elif not (is_free(path) if is_sweep else path.split(".")[0] in _FREE_OF_TRAININGS):
            parts["fields"][path] = digest_of(value)[:_DIGITS]
    return parts if len(orjson.dumps(parts)) <= MAX_CHARS else _whole(parts)


def outline_changes(old: Outline, new: Outline, scheduled_at: float | None = None) -> Changes:
    """The differences between the specs of two outlines, as `changes` names them where the values are known.

    Args:
        old: Of the run as it is.
        new: Of the one that is asked for.
        scheduled_at: As in `changes`.
    """
    unsafe = [*_trainable(old, new), *_fields(old, new), *_searches(old, new)]
    safe: list[str] = []
    before, after = old["limits"], new["limits"]
    is_opened = after.get("num_samples", 0) is None and before.get("num_samples", 0) is not None
    for field in {**before, **after}:
        each = Difference.between(field, before, after)
        if each is not None:
            (safe if is_safe(each, scheduled_at, is_opened=is_opened) else unsafe).append(str(each))
    return Changes(tuple(safe), tuple(unsafe))


def _whole(parts: dict[str, Any]) -> dict[str, Any]:
    """With one digest for each field; another outline that has more is brought to this form likewise."""
    if parts["whole"]:
        return parts
    grouped: dict[str, dict[str, str]] = {}
    for path, digest in parts["fields"].items():
        grouped.setdefault(path.split(".")[0], {})[path] = digest
    fields = {name: digest_of(digests)[:_DIGITS] for name, digests in grouped.items()}
    return {**parts, "fields": fields, "whole": True}


def _search(search: SearchSpec) -> dict[str, Any]:
    """Its kind with its options written out, and whether the spec leaves it open."""
    options = search.effective().options.model_dump(mode="json")
    # Those of a user's own class may be anything; long lists of configs are long.
    if search.kind not in SearchSpec.kinds or len(orjson.dumps(options)) > MAX_CHARS // 4:
        options = {"options": digest_of(options)[:_DIGITS]}
    return {"search": {search.kind: options}, "open": search.is_open}


def _trainable(old: Outline, new: Outline) -> Iterator[str]:
    if not are_same(old["trainable"], new["trainable"]):
        yield str(Difference("trainable", old["trainable"], new["trainable"]))


def _fields(old: Outline, new: Outline) -> Iterator[str]:
    if old["whole"] or new["whole"]:
        old, new = _whole(dict(old)), _whole(dict(new))
    before, after = old["fields"], new["fields"]
    yield from (f"{name} differs" for name in {**before, **after} if before.get(name) != after.get(name))


def _searches(old: Outline, new: Outline) -> Iterator[str]:
    """As `SearchSpec.settled_by`: what the new one leaves open is as in the old one."""
    if "search" not in old or "search" not in new:
        return
    ((was, before),), ((kind, after),) = old["search"].items(), new["search"].items()
    if new["open"] and was in LEFT_OPEN:
        kind, after = was, SearchSpec.kinds[was]().model_dump(mode="json")
    if was != kind:
        yield str(Difference("search", was, kind))
        return
    for name in {**before, **after}:
        each = Difference.between(f"search.{kind}.{name}", *(_under(kind, one) for one in (before, after)))
        if each is not None:
            yield str(each)


def _under(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    return {f"search.{kind}.{name}": value for name, value in options.items()}
