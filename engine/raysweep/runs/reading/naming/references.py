"""The one reading of what names a run: an id, its beginning, a name, `NAME@latest`, `NAME@2026-11-25`, a URI.

A name is that of the spec, or its slug. Behind `@` stands, in this order of precedence:

- `latest`: of the runs of the name, the one that was started last;
- the key of a run, as it was given;
- a date: the run with that date in its key, else the one that was started on that day, by the local clock.
  The key goes first because it names the night: a run of the night of the 24th may be started on the 25th.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from raysweep.errors import SweepNotFoundError, one_line
from raysweep.outcome import Standing
from raysweep.outcome.showing.formatting import show_age
from raysweep.runs.reading.listing import DEFAULT_STORAGE, ids_of, list_runs
from raysweep.specs.identity import RunId, is_run_id, slug
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.parallel import run_folders
from raysweep.storage.objects.store import Store

LATEST: Final = "latest"
Kind = Literal["sweep", "train"]
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_DOCUMENTS: Final[dict[Kind, str]] = {"sweep": "sweep.json", "train": "train.json"}
_SHOWN: Final = 5
_CANDIDATES: Final = 4
_KEY_CHARACTERS: Final = 40
"""An error is one line of 600 characters: so much of a key is in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A person's reference to a run."""

    store: Store
    name: str
    """An id, its beginning, or a name."""
    which: str = ""
    """The text behind `@`; empty for none."""

    @property
    def text(self) -> str:
        """As it was given, without the storage."""
        return f"{self.name}@{self.which}" if self.which else self.name


def read_reference(text: str, storage: str | None) -> Reference:
    """The storage and the name in it; see `split_night`."""
    head, which = split_night(text)
    parent, slash, name = head.rstrip("/").rpartition("/")
    store = open_store((parent or "/") if slash else storage or DEFAULT_STORAGE)
    return Reference(store=store, name=name if slash else head, which=which)


def split_night(text: str) -> tuple[str, str]:
    """The text before the `@` that divides name and night, and behind it; empty for none.

    That is an `@` behind the last `/`. In `NAME@KEY` the key may hold `/` too.
    """
    head, at, which = text.partition("@")
    if not at or "/" in head:
        head, at, which = text.rpartition("@")
        if not at or "/" in which:  # that of a URI: abfss://container@account/…
            return text, ""
    return head, which


def key_has(key: str, which: str) -> bool:
    """True if a key is what stands behind `@`: itself, a date in it, or the night that it is below."""
    is_dated = _DATE.fullmatch(which) is not None and which in _DATE.findall(key)
    return key == which or key.startswith(f"{which}/best-") or is_dated


def find_run(reference: Reference, kind: Kind) -> str | None:
    """The id of the run of this kind; None where there is none.

    Raises:
        SweepNotFoundError: It may be one of several; names them with key, status and age.
    """
    store, name = reference.store, reference.name
    if not name or name in (".", ".."):
        return None
    if reference.which:
        return _of_night(reference, kind)
    if is_run_id(name) and store.exists(f"{name}/{_DOCUMENTS[kind]}"):
        return name
    stem = slug(name)
    own = [each for each in ids_of(store, stem) if store.exists(f"{each}/{_DOCUMENTS[kind]}")] if stem else []
    if not own:
        begin = [each for each in run_folders(store) if each.startswith(name)]
        own = [each for each in begin if store.exists(f"{each}/{_DOCUMENTS[kind]}")]
    if len(own) > 1:
        raise ambiguous(reference, list_runs(store, own))
    return own[0] if own else None


def _of_night(reference: Reference, kind: Kind) -> str | None:
    store, stem, which = reference.store, slug(reference.name), reference.which
    if not stem:
        return None
    by_key = RunId.stored(kind, stem, which).id
    if which != LATEST and store.exists(f"{by_key}/{_DOCUMENTS[kind]}"):
        return by_key
    # Of each only kind, key and start are asked for here.
    found_runs = list_runs(store, ids_of(store, stem))
    runs = [run for run in found_runs if run.kind == kind]
    if which == LATEST:
        return max(runs, key=lambda run: run.started_at or 0.0).run_id if runs else None
    found = _named(runs, which)
    if len(found) > 1:
        raise ambiguous(reference, list_runs(store, [run.run_id for run in found]))
    return found[0].run_id if found else None


def _named(runs: Sequence[Standing], which: str) -> list[Standing]:
    # What the gate handed on is trained under a key of its own below the night's.
    below = [run for run in runs if run.key.startswith(f"{which}/best-")]
    if below or not _DATE.fullmatch(which):
        return below
    in_key = [run for run in runs if which in _DATE.findall(run.key)]
    return in_key or [run for run in runs if day_of(run) == which]


def day_of(run: Standing) -> str:
    """The day on which a run was started, by the local clock: `2026-11-25`; empty where it was not."""
    return "" if run.started_at is None else time.strftime("%Y-%m-%d", time.localtime(run.started_at))


def ambiguous(reference: Reference, runs: Sequence[Standing]) -> SweepNotFoundError:
    """The error that lists the candidates, the newest first, and says how to name one."""
    newest = sorted(runs, key=lambda run: -(run.started_at or 0.0))
    shown = ", ".join(_shown(run) for run in newest[:_CANDIDATES])
    more = f" and {len(newest) - _CANDIDATES} more" if len(newest) > _CANDIDATES else ""
    stem = newest[0].run_id.rpartition("-")[0]
    of_one = len({run.run_id.rpartition("-")[0] for run in newest}) == 1 and not reference.which
    how = f"{stem}@{LATEST} is the newest, {stem}@KEY one by its key" if of_one else "give the id of one"
    return SweepNotFoundError(reference.text, reference.store.url, f"it may be {shown}{more}; {how}")


def newest_keys(reference: Reference, kind: Kind) -> list[str]:
    """The newest keys of the name, for a message."""
    stem = slug(reference.name)
    runs = list_runs(reference.store, ids_of(reference.store, stem)) if stem else []
    own = sorted((run for run in runs if run.kind == kind), key=lambda run: -(run.started_at or 0.0))
    return [run.key for run in own[:_SHOWN]]


def _shown(run: Standing) -> str:
    age = "" if run.started_at is None else f", {show_age(time.time() - run.started_at)} ago"
    return f"{run.run_id} (key {one_line(run.key, _KEY_CHARACTERS)}, {run.status}{age})"
