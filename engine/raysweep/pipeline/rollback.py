"""A rollback of a champion by its name, everywhere that it was written: for the command and the flow."""

from __future__ import annotations

from dataclasses import dataclass

from raysweep.errors import SpecError
from raysweep.runs.across_runs.champions import Line
from raysweep.runs.across_runs.evidence import find_lines
from raysweep.runs.across_runs.registrations import Synced, sync
from raysweep.runs.across_runs.releases import Rollback, roll_back
from raysweep.runs.reading.naming.references import Reference, read_reference


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
) -> RolledBack:
    """Make an earlier champion champion again, also in the registry.

    Args:
        name: The champion's name.
        storage: Where its sweeps are.
        to, by, why: As in `roll_back`.
        metric, data: As in `find_line`.

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
    return RolledBack(line=line, rollback=done, synced=sync(reference.store, line))


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
