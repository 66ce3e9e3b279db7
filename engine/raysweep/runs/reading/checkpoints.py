"""The checkpoints that a sweep keeps: how large they are, what they alone take up, and what needs them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from raysweep.core.state.sweep import SweepState
from raysweep.core.state.trial import Trial, trial_id
from raysweep.core.state.trial_parts import Checkpoint
from raysweep.core.vocabulary.lifecycle import FINAL
from raysweep.errors import CheckpointDamagedError
from raysweep.runs.across_runs.pins import find_pins, pins_of
from raysweep.runs.folder import SweepFolder
from raysweep.runs.training import CHECKPOINT_OWNER, RunFolder
from raysweep.storage.checkpoints.addresses import reference_of
from raysweep.storage.checkpoints.store import CheckpointStore

_THREADS: Final = 8
GIVE_UP_AFTER_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCheckpoint:
    """A checkpoint that the sweep keeps.

    `iteration`: how many reports lie behind it (None: the sweep itself needs it no more); `score`: the
    metric of the last of them. `new_bytes`: what it was the first of its trial to store. `needed_by`: why it
    is kept; `pinned_by`: what continues from it, so that no policy, budget or collection takes it. `problem`:
    why nothing is known of it.
    """

    uri: str
    trial_id: str
    number: int
    iteration: int | None
    score: float | None
    size_bytes: int
    new_bytes: int | None = None
    needed_by: tuple[str, ...] = ()
    pinned_by: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Reason:
    """The reason why a trial needs a checkpoint; `is_pin`: it continues from it."""

    text: str
    is_pin: bool = False


def list_kept(folder: SweepFolder, state: SweepState) -> tuple[StoredCheckpoint, ...]:
    """Checkpoints that the trials need, or that are pinned, by trial and number. Reads each one's manifest.

    Raises: StorageError: the storage does not answer. A damaged manifest is told, and raises nothing.
    """
    found: dict[tuple[int, int], Checkpoint | None] = {}
    reasons: dict[tuple[int, int], list[_Reason]] = defaultdict(list)
    for trial in state.trials.values():
        for owner, checkpoint in trial.needed:
            found[owner, checkpoint.number] = checkpoint
            reasons[owner, checkpoint.number].append(_reason(trial, owner, checkpoint))
    store = CheckpointStore(folder.store, folder.sweep_id, give_up_after_s=GIVE_UP_AFTER_S)
    for (name, number), texts in pinned_numbers(folder).items():
        if name.isdecimal() and ((int(name), number) in found or store.exists(store.uri(name, number))):
            found.setdefault((int(name), number), None)
            reasons[int(name), number] += [_Reason(text, is_pin=True) for text in texts]

    def look(who: tuple[int, int]) -> StoredCheckpoint:
        return _look(store, who, found[who], reasons[who])

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="raysweep-manifests") as pool:
        return tuple(pool.map(look, sorted(found)))


def list_trained(folder: RunFolder) -> tuple[StoredCheckpoint, ...]:
    """The checkpoints of a training run in the store, by number; not plain folders that user code has named.

    Raises: StorageError: the storage does not answer. A damaged manifest is told, and raises nothing.
    """
    store = CheckpointStore(folder.store, folder.run_id, give_up_after_s=GIVE_UP_AFTER_S)
    numbers = store.numbers(CHECKPOINT_OWNER)
    pins = pins_of(find_pins(folder.store), folder.run_id)
    found = []
    for number in numbers:
        uri = store.uri(CHECKPOINT_OWNER, number)
        size_bytes, new_bytes, problem = 0, None, ""
        try:
            manifest = store.read_manifest(uri)
            size_bytes, new_bytes = manifest.size_bytes, manifest.new_bytes
        except CheckpointDamagedError as error:
            problem = error.problem
        found.append(
            StoredCheckpoint(
                uri=uri,
                trial_id=CHECKPOINT_OWNER,
                number=number,
                iteration=None,
                score=None,
                size_bytes=size_bytes,
                new_bytes=new_bytes,
                needed_by=("the newest" if number == numbers[-1] else "the one before",),
                pinned_by=pins.get(reference_of(CHECKPOINT_OWNER, number), ()),
                problem=problem,
            )
        )
    return tuple(found)


def pinned_numbers(folder: SweepFolder) -> dict[tuple[str, int], tuple[str, ...]]:
    """The pins of the sweep's checkpoints by others, by trial id and number. Raises: StorageError."""
    found = {}
    for reference, reasons in pins_of(find_pins(folder.store), folder.sweep_id).items():
        trial, _, number = reference.removeprefix("checkpoints/").partition("/")
        if reference.startswith("checkpoints/") and number.isdecimal():
            found[trial, int(number)] = reasons
    return found


def _look(
    store: CheckpointStore, who: tuple[int, int], kept: Checkpoint | None, reasons: Sequence[_Reason]
) -> StoredCheckpoint:
    owner, number = who
    new_bytes, problem, uri = None, "", store.uri(trial_id(owner), number)
    size_bytes = kept.size_bytes if kept is not None else 0
    try:
        manifest = store.read_manifest(uri)
        size_bytes, new_bytes = manifest.size_bytes, manifest.new_bytes
    except CheckpointDamagedError as error:
        problem = error.problem
    return StoredCheckpoint(
        uri=uri,
        trial_id=trial_id(owner),
        number=number,
        iteration=kept.iteration if kept is not None else None,
        score=kept.score if kept is not None else None,
        size_bytes=size_bytes,
        new_bytes=new_bytes,
        needed_by=tuple(each.text for each in reasons if not each.is_pin),
        pinned_by=tuple(each.text for each in reasons if each.is_pin),
        problem=problem,
    )


def _reason(trial: Trial, owner: int, checkpoint: Checkpoint) -> _Reason:
    if owner != trial.number:
        return _Reason(f"trial {trial.number} continues from it", is_pin=True)
    if checkpoint != trial.checkpoint:
        return _Reason("the policy keeps it")
    if trial.state in FINAL:
        return _Reason("the newest")
    what = "is retried" if trial.attempts and trial.attempts[-1].end == "retried" else f"is {trial.state}"
    return _Reason(f"trial {trial.number} {what}, and continues from it", is_pin=True)
