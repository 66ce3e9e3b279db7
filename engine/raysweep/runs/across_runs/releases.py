"""Changes of the champion: a night's verdict, a rollback. Each is one event of the line's journal."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from raysweep.errors import SpecError
from raysweep.outcome import GateOutcome
from raysweep.runs.across_runs.champions import read_champion
from raysweep.runs.across_runs.events import Event, Judged, RolledBack, facts_fields, facts_of
from raysweep.runs.across_runs.folds import last_change
from raysweep.runs.across_runs.line_journal import LineJournal, change_line
from raysweep.runs.across_runs.records import Champion, ChampionRecord, Evidence, Facts, Line, Night
from raysweep.runs.ownership.holder import current_holder
from raysweep.runs.reading.naming.references import key_has
from raysweep.storage.checkpoints.addresses import parse_uri
from raysweep.storage.objects.store import Store

Decide = Callable[[ChampionRecord], tuple[Night, Champion | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """A rollback that was made, or had been made before."""

    champion: Champion
    """The champion that there is now."""
    entry: Evidence
    """The entry of the rollback: person, time and reason; without one, the entry that made it champion."""
    is_new: bool
    """True if this call changed the champion."""
    lost_checkpoint: str = ""
    """The URI of the champion's checkpoint, where that was deleted meanwhile: it has none now."""


def this_user() -> str:
    """`ann@host`: who runs this process."""
    holder = current_holder()
    return f"{holder.user}@{holder.host}"


def add_night(
    store: Store,
    line: Line,
    sweep_id: str,
    decide: Decide,
    *,
    gate: str = "",
    facts: Callable[[], Facts] | None = None,
) -> ChampionRecord:
    """Add a night, once. `decide` is asked again where another change has come first.

    Args:
        store: Where the sweeps are.
        line: Which champions it is compared with.
        sweep_id: The night: one that is in the history already changes nothing.
        decide: From the record as it is, the night to add, and the new champion if it has one.
        gate: Which of the sweep's gates.
        facts: What the decision was made from, for the evidence; called after `decide`.

    Raises:
        StorageError: It cannot be read or written, is damaged, or has another format.
    """

    def add(_: LineJournal, record: ChampionRecord) -> Event | None:
        if record.night(sweep_id, gate) is not None:
            return None
        night, champion = decide(record)
        known = facts_fields(facts()) if facts is not None else None
        return Judged(by=this_user(), night=night, champion=champion, facts=known)

    return change_line(store, line, add).record


def roll_back(store: Store, line: Line, to: str | None = None, *, by: str = "", why: str = "") -> Rollback:
    """Make an earlier champion champion again; the next gate compares with it.

    Args:
        store: Where the sweeps are.
        line: Which champions.
        to: The night of an earlier champion: its key, the date in it, or the sweep's id. None: the champion
            before the newest promotion; asked again before the next one, that is the same rollback.
        by: Who wants it; default: who runs this.
        why: For the evidence.

    Raises:
        SpecError: There is no such champion.
        StorageError: Champion or evidence cannot be read or written, or is damaged.
    """
    found: list[Champion] = []

    def bring_back(_: LineJournal, record: ChampionRecord) -> Event | None:
        found.clear()
        wanted = _wanted(line, record, to)
        if wanted is None:
            return None
        found.append(wanted)
        back = _as_stored(store, wanted)
        return RolledBack(champion=back, at=time.time(), by=by or this_user(), why=why)

    journal = change_line(store, line, bring_back)
    champion, entry = journal.record.champion, last_change(journal.events)
    assert champion is not None
    assert entry is not None
    lost = found[0].checkpoint_uri if found and champion.checkpoint_uri is None else None
    return Rollback(champion=champion, entry=entry, is_new=bool(found), lost_checkpoint=lost or "")


def verdict_of(store: Store, line: Line, sweep_id: str, gate: str) -> GateOutcome | None:
    """The verdict of a gate, as the line's journal has it; None where that is not known.

    Raises: StorageError: It cannot be read, or is damaged.
    """
    journal = LineJournal(store, line.path)
    journal.read()
    for each in reversed(journal.events):
        event = each.event
        if isinstance(event, Judged) and (event.night.sweep_id, event.night.gate) == (sweep_id, gate):
            facts = facts_of(event)
            return facts.verdict if facts is not None else None
    return None


def as_it_stands(store: Store, line: Line, sweep_id: str, verdict: GateOutcome) -> GateOutcome:
    """A night's verdict, with the rollback that took its champion away since, if there was one.

    Raises: StorageError: The line cannot be read, or is damaged.
    """
    if not verdict.promoted:
        return verdict
    record = read_champion(store, line)
    if record.champion is not None and record.champion.sweep_id == sweep_id:
        return verdict
    return verdict.after(record.undone.get(sweep_id))


def _wanted(line: Line, record: ChampionRecord, to: str | None) -> Champion | None:
    """The champion to go back to; None: that is done already. Raises: SpecError."""
    now = record.champion
    if now is None:
        raise SpecError("NAME", f"{line.name!r} has no champion by {line}", "see `raysweep nights`")
    if to is not None:
        wanted = _of_night(record, to, line)
        return None if wanted.identity == now.identity else wanted
    if record.is_rolled_back:
        return None
    if len(record.stack) < 2:
        text = f"the champion of {line.name!r}, of {_night(now)}, is the first one"
        raise SpecError("NAME", text, "there is none before it to go back to")
    return record.stack[-2]


def _of_night(record: ChampionRecord, to: str, line: Line) -> Champion:
    champions = record.known
    found = [each for each in champions.values() if each.sweep_id == to or key_has(each.key, to)]
    if len(found) == 1:
        return found[0]
    if found:
        known = ", ".join(each.sweep_id for each in found)
        raise SpecError("--to", f"{to!r} may be {known}", "give the id of one")
    known = ", ".join(dict.fromkeys(each.key or each.sweep_id for each in reversed(list(champions.values()))))
    raise SpecError("--to", f"no champion of {line.name!r} is of the night {to!r}", f"there are {known}")


def _as_stored(store: Store, champion: Champion) -> Champion:
    """Without its checkpoint, where that was deleted since."""
    uri = champion.checkpoint_uri
    if uri is None or not uri.startswith(f"{store.url}/"):
        return champion
    _, sweep_id, trial_id, number = parse_uri(uri)
    if store.exists(f"{sweep_id}/checkpoints/{trial_id}/{number}.json"):
        return champion
    return champion.model_copy(update={"checkpoint_uri": None})


def _night(champion: Champion) -> str:
    return f"the night of {champion.key}" if champion.key else champion.sweep_id
