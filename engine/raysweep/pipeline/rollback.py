"""A rollback of a champion by its name, everywhere that it was written: for the command and the flow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raysweep.errors import SpecError
from raysweep.hooks.model_registry import RegistrySpec
from raysweep.outcome import SweepOutcome
from raysweep.pipeline import registering
from raysweep.runs.across_runs.champions import Line
from raysweep.runs.across_runs.evidence import find_lines
from raysweep.runs.across_runs.registrations import Synced, sync
from raysweep.runs.across_runs.releases import Rollback, as_it_stands, roll_back
from raysweep.runs.across_runs.verdicts import read_verdict
from raysweep.runs.reading.naming.references import Reference, read_reference
from raysweep.runs.reading.view import RunView
from raysweep.specs import RunRequest, TrainSpec
from raysweep.storage.objects.opening import open_store


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledBack:
    """A rollback, and how the registry stands after it."""

    line: Line
    rollback: Rollback
    synced: Synced | None
    """None: no model of the line is registered."""


def roll_back_champion(
    name: str,
    storage: str | None,
    *,
    to: str | None = None,
    by: str = "",
    why: str = "",
    metric: str | None = None,
    data: str | None = None,
    registry: RegistrySpec | None = None,
) -> RolledBack:
    """Make an earlier champion champion again, also in the registry.

    Args:
        name: The champion's name.
        storage: Where its sweeps are.
        to, by, why: As in `roll_back`.
        metric, data: As in `find_line`.
        registry: The pipeline's; None: its next night moves the alias.

    Raises:
        SpecError: There is no such line, or none to go back to.
        StorageError: It cannot be read or written, or its evidence is damaged.
    """
    reference = read_reference(name, storage)
    if reference.which:
        fix = f"write {reference.name} --to {reference.which}"
        raise SpecError("NAME", f"{reference.text!r} names a night", fix)
    line = find_line(reference, metric, data)
    done = roll_back(reference.store, line, to, by=by, why=why)
    return RolledBack(line=line, rollback=done, synced=sync(reference.store, line, registry))


def why_undone(request: RunRequest[TrainSpec], given: SweepOutcome | Mapping[str, Any] | None) -> str:
    """The reason why a training is not begun whose champion was rolled back since; empty: it is begun.

    One that has begun before continues.

    Args:
        request: The training.
        given: The outcome that its config comes from, with the verdict of its gate, or the brief of it.

    Raises: StorageError.
    """
    fields = given.model_dump(include={"uri", "name", "gate"}) if isinstance(given, SweepOutcome) else given
    verdict = (fields or {}).get("gate") or {}
    if not fields or not verdict.get("promoted") or not fields.get("uri"):
        return ""
    if RunView("train", request.spec.storage_path, request.run.id).has_spec():
        return ""
    storage, _, sweep_id = str(fields["uri"]).rpartition("/")
    store, gate_id = open_store(storage), str(verdict["gate_id"])
    line = registering.find_line(store, str(fields.get("name", "")), sweep_id, gate_id)
    kept = read_verdict(store, sweep_id, gate_id) if line is not None else None
    if line is None or kept is None:
        return ""
    now = as_it_stands(store, line, sweep_id, kept)
    return f"training skipped: {now.why}" if now.undone is not None else ""


def find_line(reference: Reference, metric: str | None = None, data: str | None = None) -> Line:
    """The line of champions that is meant.

    Args:
        reference: Its name, and where its sweeps are.
        metric: Where the name has champions by several metrics.
        data: Where it has champions on several data sets.

    Raises:
        SpecError: There is none, or several.
        StorageError: It cannot be read.
    """
    every = find_lines(reference.store, reference.name)
    found = [line for line in every if metric in (None, line.metric) and data in (None, line.data)]
    if len(found) == 1:
        return found[0]
    if found:
        known = ", ".join(map(str, found))
        raise SpecError("NAME", f"{reference.name!r} has champions by {known}", "name one: --metric, --data")
    if every:
        known = ", ".join(map(str, every))
        raise SpecError("--metric", f"{reference.name!r} has no such champion", f"there are {known}")
    fix = "give the name of a sweep whose gate has decided, and --storage"
    raise SpecError("NAME", f"{reference.name!r} has no champion at {reference.store.url}", fix)
