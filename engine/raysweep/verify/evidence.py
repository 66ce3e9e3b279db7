"""The evidence behind the champions of a sweep's name: an unbroken chain, and the verdicts that it holds."""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from raysweep.errors import StorageError, StorageUnavailableError
from raysweep.runs.across_runs.evidence import Chain, read_chain, read_line
from raysweep.runs.across_runs.line_journal import RESTORE_FIX as LINE_FIX
from raysweep.runs.across_runs.line_journal import paths_of
from raysweep.runs.across_runs.verdicts import (
    DECISION,
    FOLDER,
    VERDICT,
    stored_decision,
    stored_verdict,
)
from raysweep.runs.folder import SweepFolder
from raysweep.specs import SweepSpec
from raysweep.storage.journal.segment import RESTORE_FIX
from raysweep.verify.report import Finding

_LOST = "why the champion is champion"


def check_evidence(folder: SweepFolder, spec: SweepSpec | None) -> Iterator[Finding]:
    """All lines of champions that gates of this sweep compare with, and the sweep's own verdicts.

    Raises: StorageError: The storage does not answer.
    """
    store, gates = folder.store, folder.store.list_folders(f"{folder.sweep_id}/{FOLDER}")
    names = dict.fromkeys(
        [*([spec.name] if spec is not None else []), *(_champion_of(folder, gate) for gate in gates)]
    )
    chains: list[Chain] = []
    are_whole = True
    for name in (each for each in names if each):
        for path in paths_of(store, name):
            try:
                chain = read_chain(store, read_line(store, path))
            except StorageError as error:
                if isinstance(error, StorageUnavailableError):
                    raise
                are_whole = False
                key = error.path.removeprefix(f"{store.url}/")
                yield Finding(severity="damage", object=key, problem=error.problem, lost=_LOST, fix=error.fix)
                continue
            chains.append(chain)
            are_whole &= not chain.flaws
            for flaw in chain.flaws:
                yield Finding(
                    severity="damage", object=flaw.object, problem=flaw.problem, lost=_LOST, fix=LINE_FIX
                )
    for gate in gates:
        yield from _check_verdict(folder, gate, chains, are_whole=are_whole)
        yield from _check_decision(folder, gate, chains, are_whole=are_whole)


def _unknown(name: str, chains: list[Chain], *, are_whole: bool) -> Finding:
    """A verdict or decision of which no line knows: it was written after its event."""
    if chains and are_whole:
        problem = "is of an event that the line of champions has lost: the line is an older copy"
        return Finding(severity="damage", object=name, problem=problem, lost=_LOST, fix=LINE_FIX)
    return Finding(severity="note", object=name, problem="has no evidence that can be read")


def _check_verdict(
    folder: SweepFolder, gate: str, chains: list[Chain], *, are_whole: bool
) -> Iterator[Finding]:
    name = f"{FOLDER}/{gate}/{VERDICT}"
    try:
        verdict = stored_verdict(folder.store, folder.sweep_id, gate)
    except StorageError as error:
        yield Finding(
            severity="damage", object=name, problem=error.problem, lost="the verdict", fix=error.fix
        )
        return
    if verdict is None:
        return
    entries = (entry for chain in chains for entry in chain.entries if entry.facts is not None)
    found = [each.facts for each in entries if (each.sweep_id, each.gate) == (folder.sweep_id, gate)]
    if not found:
        yield _unknown(name, chains, are_whole=are_whole)
    elif all(facts is None or facts.verdict.to_json() != verdict.to_json() for facts in found):
        problem = "is not the verdict that the evidence holds"
        yield Finding(severity="damage", object=name, problem=problem, fix=RESTORE_FIX)


def _check_decision(
    folder: SweepFolder, gate: str, chains: list[Chain], *, are_whole: bool
) -> Iterator[Finding]:
    """The copy of an approval's decision: the gate's outcome is read with it."""
    name = f"{FOLDER}/{gate}/{DECISION}"
    try:
        decision = stored_decision(folder.store, folder.sweep_id, gate)
    except StorageError as error:
        yield Finding(
            severity="damage", object=name, problem=error.problem, lost="the decision", fix=error.fix
        )
        return
    if decision is None:
        return
    entries = (entry for chain in chains for entry in chain.entries if entry.decision is not None)
    found = [each.decision for each in entries if (each.sweep_id, each.gate) == (folder.sweep_id, gate)]
    if not found:
        yield _unknown(name, chains, are_whole=are_whole)
    elif decision not in found:
        problem = "is not the decision that the evidence holds"
        yield Finding(severity="damage", object=name, problem=problem, fix=RESTORE_FIX)


def _champion_of(folder: SweepFolder, gate: str) -> str:
    """The champion's name, as a gate names it; empty where its plan cannot be read: the gate says so."""
    try:
        plan = orjson.loads(folder.store.get(f"{folder.sweep_id}/{FOLDER}/{gate}/plan.json") or b"")
        return str(plan["gate"]["champion"])
    except (ValueError, KeyError, TypeError):
        return ""
