"""Changes of the champion: a night's verdict, a rollback. Each is made once, with its evidence."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from raysweep.errors import SpecError, StorageError
from raysweep.outcome import GateOutcome, Undone
from raysweep.runs.across_runs.champions import Champion, ChampionRecord, Line, Night, read_champion
from raysweep.runs.across_runs.evidence import Chain, Evidence, Facts, read_chain, read_entry
from raysweep.runs.across_runs.line_changes import Change, change_line
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
    """Who brought it back, when and why; without a rollback, the entry that made it champion."""
    is_new: bool
    """Whether this call changed the champion."""
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

    def add(record: ChampionRecord) -> Change | None:
        if record.night(sweep_id, gate) is not None:
            return None
        night, champion = decide(record)
        return Change(
            record=record.after(night, champion),
            kind="gate",
            at=night.at,
            by=this_user(),
            why=night.why,
            night=night,
            facts=facts() if facts is not None else None,
        )

    return change_line(store, line, add)


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
    found: list[Rollback] = []
    wanted_uri: list[str | None] = [None]

    def bring_back(record: ChampionRecord) -> Change | None:
        found.clear()
        chain = _sound_chain(store, line)
        # Another call may have changed the line since `record` was read: then nothing is written below.
        record, entries = chain.record, chain.entries
        if record.champion is None or not entries or record.head == "":
            raise SpecError("NAME", f"{line.name!r} has no champion by {line}", "see `raysweep nights`")
        made = next(each for each in reversed(entries) if each.promoted)
        stack = _Standing(entries).stack
        if to is None:
            if made.kind == "rollback":
                found.append(Rollback(champion=record.champion, entry=made, is_new=False))
                return None
            if len(stack) < 2:
                text = f"the champion of {line.name!r}, of {_night(record.champion)}, is the first one"
                raise SpecError("NAME", text, "there is none before it to go back to")
            stack = stack[:-1]
        else:
            wanted = _of_night(entries, to, line)
            if _same(wanted, record.champion):
                found.append(Rollback(champion=record.champion, entry=made, is_new=False))
                return None
            places = [place for place, each in enumerate(stack) if _same(each, wanted)]
            stack = stack[: places[-1] + 1] if places else [*stack, wanted]
        before = _as_stored(store, stack[-2]) if len(stack) > 1 else None
        champion = _as_stored(store, stack[-1]).model_copy(update={"replaced": before})
        wanted_uri[:] = [stack[-1].checkpoint_uri]
        night = Night(sweep_id=champion.sweep_id, key=champion.key, at=time.time(), promoted=True)
        undone = Undone(by=by or this_user(), at=night.at, why=why)
        history = _marked(record.history, stack, undone)
        return Change(
            record=record.model_copy(update={"champion": champion, "history": history}),
            kind="rollback",
            at=night.at,
            by=undone.by,
            why=why,
            night=night,
        )

    record = change_line(store, line, bring_back)
    if found:
        return found[0]
    champion = record.champion
    assert champion is not None
    entry = read_chain(store, line).entries[-1]
    lost = wanted_uri[0] if champion.checkpoint_uri is None else None
    return Rollback(champion=champion, entry=entry, is_new=True, lost_checkpoint=lost or "")


def evidence_of(
    store: Store, line: Line, record: ChampionRecord, sweep_id: str, gate: str
) -> Evidence | None:
    """The evidence of a gate's verdict; None where its night is in the history no more.

    Raises: StorageError: It is gone, or not as it was written.
    """
    night = record.night(sweep_id, gate)
    return read_entry(store, line, night.evidence) if night is not None and night.evidence else None


def as_it_stands(store: Store, line: Line, sweep_id: str, verdict: GateOutcome) -> GateOutcome:
    """A night's verdict, with the rollback that took its champion away since, if there was one.

    Only for a night that 60 others have followed all evidence is read.

    Raises: StorageError: Champion or evidence cannot be read, or is damaged.
    """
    if not verdict.promoted:
        return verdict
    record = read_champion(store, line)
    if record.champion is not None and record.champion.sweep_id == sweep_id:
        return verdict
    night = record.night(sweep_id, verdict.gate_id)
    if night is not None:
        return verdict.after(night.undone)
    entry = _Standing(read_chain(store, line).entries).undone.get(sweep_id)
    return verdict.after(Undone(by=entry.by, at=entry.at, why=entry.why) if entry is not None else None)


def _marked(history: tuple[Night, ...], stack: list[Champion], undone: Undone) -> tuple[Night, ...]:
    """The nights, those marked whose champions are on the stack no more."""
    standing = {champion.sweep_id for champion in stack}

    def marked(night: Night) -> Night:
        if not night.promoted:
            return night
        mark = None if night.sweep_id in standing else night.undone or undone
        return night.model_copy(update={"undone": mark})

    return tuple(map(marked, history))


def _sound_chain(store: Store, line: Line) -> Chain:
    """The line's evidence. Raises StorageError: something in it is not as it was written."""
    chain = read_chain(store, line)
    if chain.flaws:
        flaw = chain.flaws[0]
        more = f" (and {len(chain.flaws) - 1} more)" if len(chain.flaws) > 1 else ""
        fix = "`raysweep verify` lists all; restore it from a backup, then roll back"
        raise StorageError(f"{store.url}/{flaw.object}", f"{flaw.problem}{more}", fix)
    return chain


class _Standing:
    """The champions, each with those under it that it replaced: what a rollback comes back to.

    `undone`: by their sweeps, the rollback that took each of the others away.
    """

    def __init__(self, entries: tuple[Evidence, ...]) -> None:
        self.stack: list[Champion] = []
        self.undone: dict[str, Evidence] = {}
        for entry in entries:
            if entry.promoted and entry.after is not None:
                self._add(entry, entry.after)

    def _add(self, entry: Evidence, champion: Champion) -> None:
        stack = self.stack
        if entry.kind == "rollback":
            places = [place for place, each in enumerate(stack) if _same(each, champion)]
            if places:
                self.undone |= {each.sweep_id: entry for each in stack[places[-1] :]}
                del stack[places[-1] :]
        elif stack and stack[-1].sweep_id == champion.sweep_id:
            # A sweep's own champion does not stand under its next one.
            stack.pop()
        stack.append(champion)
        self.undone.pop(champion.sweep_id, None)


def _of_night(entries: tuple[Evidence, ...], to: str, line: Line) -> Champion:
    champions = {(each.after.sweep_id, each.after.at): each.after for each in entries if each.after}
    found = [each for each in champions.values() if each.sweep_id == to or key_has(each.key, to)]
    if len(found) == 1:
        return found[0]
    if found:
        known = ", ".join(each.sweep_id for each in found)
        raise SpecError("--to", f"{to!r} may be {known}", "give the id of one")
    known = ", ".join(dict.fromkeys(each.key or each.sweep_id for each in reversed(champions.values())))
    raise SpecError("--to", f"no champion of {line.name!r} is of the night {to!r}", f"there are {known}")


def _same(one: Champion, other: Champion) -> bool:
    return (one.sweep_id, one.at) == (other.sweep_id, other.at)


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
