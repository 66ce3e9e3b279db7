"""Approval of a candidate that passed its gate: decided once, in the line's journal.

The first reader after the time for it is over writes down what silence means. A candidate whose gate
compared it with a champion that is no longer champion is rejected: its scores say nothing about the new one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final, Literal

from raysweep.errors import SpecError
from raysweep.outcome import Decision
from raysweep.runs.across_runs.champions import ChampionRecord, Line, Night, Waiting, read_champion
from raysweep.runs.across_runs.events import Approved, Event
from raysweep.runs.across_runs.line_journal import LineJournal, change_line
from raysweep.runs.across_runs.verdicts import keep_decision
from raysweep.storage.objects.store import Store

SILENCE: Final = "silence"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The decision about a candidate, and whether this call made it."""

    decision: Decision
    is_new: bool


def decide_night(
    store: Store, line: Line, sweep_id: str, gate: str, asked: Decision | None = None
) -> Decided | None:
    """Decide about a night's candidate, once; None: it still waits.

    Args:
        store: Where the sweeps are.
        line: Which champions.
        sweep_id: The night.
        gate: Which of the sweep's gates.
        asked: The decision; None: only see whether there is one, or silence has decided.

    Raises:
        SpecError: Nothing of this gate waits, or waited, for approval.
        StorageError: It cannot be read or written, or is damaged.
    """
    made: list[Decision] = []

    def decide(_: LineJournal, record: ChampionRecord) -> Event | None:
        made.clear()
        night = record.night(sweep_id, gate)
        if night is None or night.waiting is None or night.decision is not None:
            return None
        decision = _decision(record, night.waiting, asked)
        if decision is None:
            return None
        made.append(decision)
        kind: Literal["approved", "rejected"] = "approved" if decision.approved else "rejected"
        return Approved(kind=kind, sweep_id=sweep_id, gate=gate, decision=decision)

    night = change_line(store, line, decide).record.night(sweep_id, gate)
    if night is not None and night.is_waiting:
        return None
    if night is None or night.decision is None:
        fix = "`raysweep nights` lists the nights, with what waits"
        raise SpecError("NAME", f"nothing of {sweep_id!r} waits for approval", fix)
    # Also where this call did not decide: a kill may have kept the copy from being written.
    keep_decision(store, sweep_id, gate, night.decision)
    return Decided(decision=night.decision, is_new=bool(made))


def settle_silence(store: Store, line: Line) -> None:
    """Write down what silence has decided in this line. Raises: StorageError."""
    now = time.time()
    for night in read_champion(store, line).history:
        if night.waiting is not None and night.decision is None and night.waiting.until <= now:
            decide_night(store, line, night.sweep_id, night.gate)


def waiting_night(record: ChampionRecord, *, sweep_id: str = "", which: str = "") -> Night | None:
    """The newest night that waits, else the newest that did; of one sweep or key, if that is given."""
    from raysweep.runs.reading.naming.references import key_has

    asked = [each for each in reversed(record.history) if each.waiting is not None]
    if which:
        asked = [each for each in asked if each.sweep_id == which or key_has(each.key, which)]
    if sweep_id:
        asked = [each for each in asked if each.sweep_id == sweep_id]
    return next((each for each in asked if each.decision is None), next(iter(asked), None))


def _decision(record: ChampionRecord, waiting: Waiting, asked: Decision | None) -> Decision | None:
    now, champion = time.time(), record.champion_beside(waiting.proposed.sweep_id)
    against = (champion.sweep_id, champion.at) if champion is not None else ("", None)
    if against != (waiting.against_sweep, waiting.against_at):
        newer = f"the champion is now of {champion.key or champion.sweep_id}" if champion else "it is gone"
        return Decision(
            approved=False, by="raysweep", at=now, note=f"{newer}: the gate compared with another"
        )
    if now >= waiting.until:
        approved = waiting.on_silence == "promote"
        return Decision(approved=approved, by=SILENCE, at=now, note="no one decided in time")
    return asked
