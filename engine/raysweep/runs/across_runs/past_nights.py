"""Nights that are in no champion's file any more, by their evidence. Each call reads whole chains."""

from __future__ import annotations

from collections.abc import Iterator

from raysweep.errors import StorageError, StorageUnavailableError
from raysweep.outcome import Decision
from raysweep.runs.across_runs.champions import EVIDENCE, FOLDER, Line
from raysweep.runs.across_runs.evidence import Evidence, lines_of, read_chain, read_line
from raysweep.specs.identity import file_name
from raysweep.storage.objects.store import Store


def past_decision(store: Store, line: Line, sweep_id: str, gate: str) -> Decision | None:
    """What was decided about the candidate of a gate; None where none waited. Raises: StorageError."""
    found = (each.decision for each in _entries(store, line, sweep_id, gate) if each.decision is not None)
    return next(found, None)


def past_line(store: Store, name: str, sweep_id: str, gate: str) -> Line | None:
    """The line that a gate has decided in.

    Args:
        store: Where the sweeps are.
        name: The champion's name; empty: any.
        sweep_id, gate: The gate.

    Raises: StorageError.
    """
    folders = (
        [file_name(name)] if name else sorted({*store.list_folders(FOLDER), *store.list_folders(EVIDENCE)})
    )
    for folder in folders:
        for stem in lines_of(store, folder):
            try:
                line = read_line(store, folder, stem)
                found = next(_entries(store, line, sweep_id, gate), None)
            except StorageUnavailableError:
                raise
            except StorageError:
                continue  # `raysweep verify` names it
            if found is not None:
                return line
    return None


def _entries(store: Store, line: Line, sweep_id: str, gate: str) -> Iterator[Evidence]:
    """Those of a gate, the newest first."""
    for entry in reversed(read_chain(store, line).entries):
        if (entry.sweep_id, entry.gate) == (sweep_id, gate) and entry.kind != "rollback":
            yield entry
