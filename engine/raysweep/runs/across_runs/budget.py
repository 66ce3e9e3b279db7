"""The budget for the checkpoints of all sweeps of one name: what is released, and in which order.

All that these sweeps have stored counts; only those that have ended give something up, the oldest first, of
each the worst trial first, of each the oldest checkpoint first. What is pinned stays. Only the journals of
sweeps that still hold checkpoints are read.

A sweep releases a checkpoint in this order; after a crash anywhere, the next collection completes it:

1. A claim of its journal names the checkpoints (`ControllerStarted.released`). It fails where anybody else
   has taken the sweep up since it was looked at: then nothing of it goes.
2. Another claim seals the first: no torn end of the journal can bring back what is deleted next
   (docs/design/storage.md).
3. `outcome.json` names them no more, unless it has been replaced meanwhile.
4. They are deleted.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from raysweep.core import SweepState, decode, encode, step
from raysweep.core.state.trial import Trial, trial_id
from raysweep.core.views.result import best_shown, trial_outcome
from raysweep.core.views.scores import ranked
from raysweep.core.vocabulary.events import ControllerStarted
from raysweep.errors import CheckpointDamagedError, RaysweepError, SegmentExistsError, StorageError
from raysweep.outcome import SweepOutcome, Trials
from raysweep.runs.across_runs.pins import PinReader, Pins
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.runs.ownership.holder import current_holder, find_living
from raysweep.runs.ownership.replay import damaged_record
from raysweep.schedulers import load_scheduler
from raysweep.specs import SweepSpec
from raysweep.specs.identity import slug
from raysweep.storage.checkpoints.addresses import reference_of
from raysweep.storage.checkpoints.manifest import Manifest
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.journal.journal import Journal
from raysweep.storage.objects.parallel import each_of
from raysweep.storage.objects.store import Store

log = logging.getLogger("raysweep")
GIVE_UP_AFTER_S: Final = 30.0
_TRIALS_AT_ONCE: Final = 64
"""The manifests of so many trials are read together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A checkpoint that a budget takes. `freed_bytes`: its manifest, and what no other one refers to then."""

    sweep_id: str
    trial: int
    number: int
    uri: str
    freed_bytes: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetPlan:
    """The checkpoints that a budget takes of the sweeps of a name.

    `pinned`: what would have gone next, by URI, and what needs it. `notes`: what was left out of account.
    """

    name: str
    budget_bytes: int
    used_bytes: int
    releases: tuple[Release, ...] = ()
    pinned: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def freed_bytes(self) -> int:
        """By all releases together."""
        return sum(each.freed_bytes for each in self.releases)

    @property
    def over_bytes(self) -> int:
        """The bytes above the budget even then."""
        return max(0, self.used_bytes - self.freed_bytes - self.budget_bytes)


@dataclass(kw_only=True)
class _Ended:
    """A sweep that has ended, and its journal, read to the end."""

    folder: SweepFolder
    journal: Journal
    state: SweepState
    is_sealed: bool


@dataclass(kw_only=True)
class _Planning:
    store: Store
    left_bytes: int
    pins: Pins
    sizes: Mapping[str, Mapping[str, int]]
    """By sweep, the bytes of what is stored of its checkpoints, by key."""
    releases: list[Release] = field(default_factory=list)
    pinned: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def sweeps_of(store: Store, name: str) -> tuple[SweepFolder, ...]:
    """The sweeps of this name, by id. Raises: StorageError."""
    folders = _folders_like(store, name)
    names = each_of(store, _name_of, folders)
    return tuple(folder for folder, each in zip(folders, names, strict=True) if each == name)


def name_like(store: Store, given: str) -> str | None:
    """The name that is meant: one that sweeps have, or its slug, as ids begin; None if none or two.

    Raises: StorageError.
    """
    folders = _folders_like(store, given)
    names = {name for name in each_of(store, _name_of, folders) if name}
    return given if given in names else names.pop() if len(names) == 1 else None


def asked_budget(store: Store, name: str) -> int | None:
    """The budget in the newest spec of this name; None where that has none, or there is no sweep.

    Raises: StorageError, SweepDamagedError.
    """
    newest: tuple[float, int | None] = (-1.0, None)
    for folder in sweeps_of(store, name):
        record, info = folder.read_spec(), folder.store.head(f"{folder.sweep_id}/sweep.json")
        if record is not None and info is not None and info.modified_at > newest[0]:
            spec = SweepSpec.from_any(dict(record.spec))
            newest = info.modified_at, spec.checkpoint.storage_budget
    return newest[1]


def plan_budget(store: Store, name: str, budget_bytes: int, pins: PinReader | None = None) -> BudgetPlan:
    """The releases after which the checkpoints of this name's sweeps take up no more than that; only reads.

    `pins`: what reads them; `keep_budget` with the same one reads less.

    Raises: StorageError: it cannot be read. What is damaged, or whose scheduler cannot be imported here, is
        passed over, and said in the notes.
    """
    folders = sweeps_of(store, name)
    sizes = each_of(store, _stored, folders)
    used_bytes = sum(sum(each.values()) for each in sizes)
    if used_bytes <= budget_bytes:
        return BudgetPlan(name=name, budget_bytes=budget_bytes, used_bytes=used_bytes)
    pins = pins or PinReader(store)
    pins.know_sweeps(folder.sweep_id for folder in folders)
    planning = _Planning(
        store=store,
        left_bytes=used_bytes - budget_bytes,
        pins=pins.read(),
        sizes={folder.sweep_id: each for folder, each in zip(folders, sizes, strict=True)},
    )
    # Nights that gave all they had need no replay: after a year that is nearly all of them.
    holding = [folder for folder in folders if planning.sizes[folder.sweep_id]]
    ended = sorted(
        _ended(holding, planning), key=lambda each: (each.state.clock.ended_at or 0.0, each.folder.sweep_id)
    )
    if ended:
        _pin_best(ended[-1], planning)
    for each in ended:
        _plan_sweep(each, planning)
    return BudgetPlan(
        name=name,
        budget_bytes=budget_bytes,
        used_bytes=used_bytes,
        releases=tuple(planning.releases),
        pinned=tuple(planning.pinned),
        notes=tuple(planning.notes),
    )


def keep_budget(store: Store, plan: BudgetPlan, pins: PinReader | None = None) -> tuple[Release, ...]:
    """Carry a plan out; returns what has gone. What changed since it was made is left alone.

    `pins` are read again before each sweep gives something up.

    Raises: StorageError: the storage does not answer; the next collection completes what was begun.
    """
    done: list[Release] = []
    pins = pins or PinReader(store)
    for sweep_id in dict.fromkeys(each.sweep_id for each in plan.releases):
        releases = [each for each in plan.releases if each.sweep_id == sweep_id]
        done += _let_go(SweepFolder(store, sweep_id), releases, pins)
    return tuple(done)


def complete(folder: SweepFolder) -> None:
    """Complete what a budget had begun with a sweep, before its process died. Raises: as `keep_budget`."""
    found = _read_ended(folder)
    if found is not None:
        if not found.is_sealed:
            _seal(found.journal)
        _tell_outcome(found)


# -- what goes ------------------------------------------------------------------------------------------


def _ended(folders: Sequence[SweepFolder], planning: _Planning) -> Iterator[_Ended]:
    for folder, found in zip(folders, each_of(planning.store, _try_ended, folders), strict=True):
        if isinstance(found, _Ended):
            yield found
        else:
            planning.notes.append(f"{folder.sweep_id} is left alone: {found or 'it has not ended'}")


def _try_ended(folder: SweepFolder) -> _Ended | RaysweepError | None:
    """As `_read_ended`; an error that does not pass is returned. Raises: StorageError."""
    try:
        return _read_ended(folder)
    except RaysweepError as error:
        if isinstance(error, StorageError) and error.retryable:
            raise
        return error


def _read_ended(folder: SweepFolder) -> _Ended | None:
    """A sweep that has ended, and that no process runs."""
    record = folder.read_spec()
    if record is None or record.leaving is not None or folder.read_outcome() is None:
        return None
    if find_living(folder.read_progress) is not None:
        return None
    found = _replay(folder, record)
    return found if found.state.phase == "ended" else None


def _replay(folder: SweepFolder, record: SweepRecord) -> _Ended:
    spec = SweepSpec.from_any(dict(record.spec))
    load_scheduler(spec)
    journal, state = folder.journal(), SweepState.create(spec, record.seed)
    event = None
    for number, line in enumerate(journal.read(), start=1):
        try:
            event = decode(line)
        except ValueError as error:
            raise damaged_record(number, error) from error
        step(state, event)
    is_sealed = not (isinstance(event, ControllerStarted) and event.released)
    return _Ended(folder=folder, journal=journal, state=state, is_sealed=is_sealed)


def _pin_best(newest: _Ended, planning: _Planning) -> None:
    """Pin the best trial of a sweep that has just ended: a gate or a training begins from it."""
    best = best_shown(newest.state)
    if best is not None and best.checkpoint is not None:
        checkpoints = CheckpointStore(newest.folder.store, newest.folder.sweep_id)
        # Of another trial's, perhaps, that it continued from.
        name = f"{newest.folder.sweep_id}/{checkpoints.addresses.reference(best.checkpoint.uri)}"
        reasons = (*planning.pins.get(name, ()), "the best of the newest sweep")
        planning.pins = {**planning.pins, name: reasons}


def _reference(folder: SweepFolder, trial: int, number: int) -> str:
    """A checkpoint as pins name it."""
    return f"{folder.sweep_id}/{reference_of(trial_id(trial), number)}"


def _plan_sweep(ended: _Ended, planning: _Planning) -> None:
    places = {trial.number: place for place, trial in enumerate(ranked(ended.state), start=1)}
    trials = sorted(
        ended.state.trials.values(),
        key=lambda trial: (-places.get(trial.number, len(ended.state.trials) + 1), trial.number),
    )
    holding = [trial for trial in trials if trial.checkpoints]
    for first in range(0, len(holding), _TRIALS_AT_ONCE):
        if planning.left_bytes <= 0:
            return
        batch = holding[first : first + _TRIALS_AT_ONCE]
        read = partial(_read_manifests, ended.folder)
        for trial, manifests in zip(batch, each_of(planning.store, read, batch), strict=True):
            if isinstance(manifests, CheckpointDamagedError):
                name = f"trial {trial.number} of {ended.folder.sweep_id}"
                planning.notes.append(f"{name} is left alone: {manifests}")
                continue
            place = places.get(trial.number)
            rank = f"place {place}" if place else "without a place"
            _plan_trial(ended.folder, trial, manifests, rank, planning)


def _checkpoints(folder: SweepFolder) -> CheckpointStore:
    return CheckpointStore(folder.store, folder.sweep_id, give_up_after_s=GIVE_UP_AFTER_S)


def _read_manifests(folder: SweepFolder, trial: Trial) -> list[Manifest] | CheckpointDamagedError:
    """Those of a trial's checkpoints, in their order."""
    store, name = _checkpoints(folder), trial_id(trial.number)
    try:
        return [store.read_manifest(store.uri(name, each.number)) for each in trial.checkpoints]
    except CheckpointDamagedError as error:
        return error


def _plan_trial(
    folder: SweepFolder, trial: Trial, manifests: Sequence[Manifest], place: str, planning: _Planning
) -> None:
    store, stored = _checkpoints(folder), planning.sizes[folder.sweep_id]
    addresses, name = store.addresses, trial_id(trial.number)
    sizes: dict[str, int] = {}
    held: dict[int, set[str]] = {}
    for manifest in manifests:
        own = addresses.manifest_key(name, manifest.number)
        keys = {addresses.object_key(manifest, each): each.size_bytes for each in manifest.objects}
        sizes |= {key: stored.get(key, size_bytes) for key, size_bytes in (keys | {own: 0}).items()}
        held[manifest.number] = {own, *keys}
    uses = Counter(key for keys in held.values() for key in keys)
    for checkpoint in trial.checkpoints:
        if planning.left_bytes <= 0:
            return
        uri = store.uri(name, checkpoint.number)
        reasons = planning.pins.get(_reference(folder, trial.number, checkpoint.number), ())
        if reasons:
            planning.pinned.append((uri, ", ".join(reasons)))
            continue
        uses.subtract(held[checkpoint.number])
        freed_bytes = sum(sizes[key] for key in held[checkpoint.number] if not uses[key])
        planning.left_bytes -= freed_bytes
        planning.releases.append(
            Release(
                sweep_id=folder.sweep_id,
                trial=trial.number,
                number=checkpoint.number,
                uri=uri,
                freed_bytes=freed_bytes,
                why=f"over the budget; of the oldest sweep that can give, the trial {place}",
            )
        )


# -- how it goes ----------------------------------------------------------------------------------------


def _let_go(folder: SweepFolder, releases: Sequence[Release], reader: PinReader) -> list[Release]:
    found = _read_ended(folder)
    if found is None:
        return []
    pins = reader.read()
    there = {
        (trial.number, checkpoint.number)
        for trial in found.state.trials.values()
        for checkpoint in trial.checkpoints
    }
    releases = [
        each
        for each in releases
        if (each.trial, each.number) in there and _reference(folder, each.trial, each.number) not in pins
    ]
    event = _claim(found.journal, tuple((each.trial, each.number) for each in releases)) if releases else None
    if event is None:
        return []
    step(found.state, event)
    _seal(found.journal)
    _tell_outcome(found)
    gone: dict[int, list[str]] = {}
    for each in releases:
        gone.setdefault(each.trial, []).append(each.uri)
    each_of(folder.store, lambda uris: _checkpoints(folder).delete(*uris), list(gone.values()))
    return releases


def _claim(journal: Journal, released: tuple[tuple[int, int], ...]) -> ControllerStarted | None:
    """Write down which checkpoints are released; None: another process has claimed the sweep."""
    holder, events = current_holder(), []

    def make_record(generation: int) -> bytes:
        event = ControllerStarted(
            at=time.time(),
            generation=generation,
            host=holder.host,
            pid=holder.pid,
            released=released,
        )
        events.append(event)
        return encode(event)

    try:
        journal.claim(make_record)
    except SegmentExistsError:
        return None
    return events[-1]


def _seal(journal: Journal) -> None:
    """Put a segment behind the last one. Another process that does so at this moment does it for us."""
    _claim(journal, ())


def _tell_outcome(ended: _Ended) -> None:
    """Let the outcome name no checkpoint that the sweep does without; not one that was replaced meanwhile."""
    uris = {
        number: trial_outcome(ended.state, trial, ended.folder.uri).checkpoint_uri
        for number, trial in ended.state.trials.items()
    }

    def mended(outcome: SweepOutcome) -> SweepOutcome:
        # As text: there may be many.
        trials = Trials.packed(
            (each.model_copy(update={"checkpoint_uri": uris[each.number]}) for each in outcome.trials),
            ended.folder.uri,
        ).with_tuples(outcome.tuples)
        best = outcome.found_best
        if best is not None:
            best = best.model_copy(update={"checkpoint_uri": uris[best.number]})
        return outcome.model_copy(update={"trials": trials, "best": best})

    ended.folder.mend_outcome(mended)


def _stored(folder: SweepFolder) -> dict[str, int]:
    """The bytes of all that is stored of a sweep's checkpoints, by key."""
    return {info.key: info.size_bytes for info in folder.store.list(f"{folder.sweep_id}/checkpoints")}


def _folders_like(store: Store, name: str) -> list[SweepFolder]:
    """The folders whose ids begin with the slug of a name; trainings are among them."""
    stem = slug(name)
    return [SweepFolder(store, each) for each in store.list_folders() if each.rpartition("-")[0] == stem]


def _name_of(folder: SweepFolder) -> str:
    try:
        record = folder.read_spec()
    except RaysweepError:
        return ""
    return str(record.spec.get("name", "")) if record is not None else ""
