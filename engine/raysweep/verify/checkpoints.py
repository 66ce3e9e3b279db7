"""Checkpoints: those that the journal knows must be whole; what else lies there is an orphan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from raysweep.core import SweepState
from raysweep.core.state.trial import Trial, trial_id
from raysweep.core.vocabulary.lifecycle import FINAL
from raysweep.errors import CheckpointDamagedError, OutsideStorageError
from raysweep.runs.folder import SweepFolder
from raysweep.storage.checkpoints.manifest import Manifest
from raysweep.storage.checkpoints.restores import show_names
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.objects.local import LOCK_MARK, TEMPORARY_MARK
from raysweep.storage.objects.store import ObjectInfo
from raysweep.verify.report import Checked, Finding, OnRead

GIVE_UP_AFTER_S: Final = 30.0
PRUNE_FIX: Final = "`raysweep verify --prune` deletes it"


@dataclass(slots=True)
class _Stored:
    """The stored objects of one checkpoint number of one trial."""

    manifest: ObjectInfo | None = None
    folders: dict[str, list[ObjectInfo]] = field(default_factory=lambda: defaultdict(list))

    def objects(self) -> list[ObjectInfo]:
        return [info for infos in self.folders.values() for info in infos]


class CheckpointCheck:
    """Checks what lies below `checkpoints/`, as of one listing."""

    def __init__(
        self,
        folder: SweepFolder,
        infos: Sequence[ObjectInfo],
        checked: Checked,
        *,
        is_quick: bool,
        on_read: OnRead | None = None,
    ) -> None:
        self._on_read = on_read
        self._total_bytes = sum(info.size_bytes for info in infos)
        self._folder = folder
        self._store = CheckpointStore(folder.store, folder.sweep_id, give_up_after_s=GIVE_UP_AFTER_S)
        self._checked = checked
        self._is_quick = is_quick
        self._strays: list[ObjectInfo] = []
        self._sizes: dict[str, int] = {}
        self._needed: set[str] = set()
        self._problems: dict[str, str | None] = {}
        self._unreadable: set[str] = set()
        self._stored: dict[tuple[str, int], _Stored] = defaultdict(_Stored)
        for info in infos:
            self._sort_in(info)

    def run(
        self,
        state: SweepState | None,
        pinned: Collection[tuple[str, int]] = (),
        unsealed: Collection[tuple[str, int]] = (),
    ) -> Iterator[Finding]:
        """Findings; `state` is None where it is not known what the sweep refers to, and so what is an orphan.

        `pinned`: what else than the sweep needs, by trial id and number; where it is there, it is no orphan.
        `unsealed`: what a journal without its last segment would need: no orphans yet.

        Raises: StorageError: the storage does not answer.
        """
        if state is None:
            for who in sorted(who for who, stored in self._stored.items() if stored.manifest):
                yield from self._check(*who, None)
            return
        wanted: dict[tuple[str, int], Trial | None] = {
            who: None for who in pinned if who in self._stored and self._stored[who].manifest is not None
        }
        wanted |= {
            (trial_id(owner), checkpoint.number): trial
            for trial in state.trials.values()
            for owner, checkpoint in trial.needed
        }
        for who, trial in sorted(wanted.items(), key=lambda item: item[0]):
            yield from self._check(*who, trial)
        spared = {who for who in unsealed if who in self._stored and self._spare(*who)}
        for who in sorted(self._stored.keys()):
            yield from self._orphans(who, is_wanted=who in wanted or who in spared)
        for info in self._strays:
            yield self._orphan(self._name(info.key), "no part of a checkpoint", [info])
        yield from self._temporary_files()

    def _orphans(self, who: tuple[str, int], *, is_wanted: bool) -> Iterator[Finding]:
        """The objects of one number to which no wanted checkpoint refers."""
        stored = self._stored[who]
        if who[0] in self._unreadable:
            return  # what its damaged manifest refers to may be all that is left to restore it from
        manifest = [] if stored.manifest is None or is_wanted else [stored.manifest]
        # The manifest first: what is half deleted does not exist.
        infos = [*manifest, *(info for info in stored.objects() if info.key not in self._needed)]
        if is_wanted:
            what = "files that its manifest does not name"
        else:
            what = "a checkpoint that no trial refers to" if manifest else "files without a manifest"
        if infos:
            yield self._orphan(f"checkpoints/{who[0]}/{who[1]}", what, infos)

    def _spare(self, trial_name: str, number: int) -> bool:
        """Keep what a checkpoint refers to from being an orphan; False: it is not there (any more)."""
        if self._stored[trial_name, number].manifest is None:
            return False
        try:
            manifest = self._store.read_manifest(self._store.uri(trial_name, number))
        except CheckpointDamagedError:
            return False  # nothing can begin from it
        self._needed.update(self._store.addresses.object_key(manifest, each) for each in manifest.objects)
        return True

    def _sort_in(self, info: ObjectInfo) -> None:
        trial, _, rest = self._name(info.key).removeprefix("checkpoints/").partition("/")
        top, slash, _ = rest.partition("/")
        number = top.partition("-")[0] if slash else top.removesuffix(".json")
        is_ours = ("-" in top) if slash else top.endswith(".json")
        if not (is_ours and number.isdecimal()):
            self._strays.append(info)
        elif slash:
            self._stored[trial, int(number)].folders[top].append(info)
            self._sizes[info.key] = info.size_bytes
        else:
            self._stored[trial, int(number)].manifest = info

    def _check(self, trial_name: str, number: int, trial: Trial | None) -> Iterator[Finding]:
        name = f"checkpoints/{trial_name}/{number}"
        self._checked.checkpoints += 1
        lost, fix = _consequence(trial, trial_name, number)
        try:
            manifest = self._store.read_manifest(self._store.uri(trial_name, number))
        except CheckpointDamagedError as error:
            self._unreadable.add(trial_name)
            yield Finding(
                severity="damage",
                object=f"{name}.json",
                problem=error.problem,
                lost=lost,
                fix=fix,
                checkpoint=(trial_name, number),
            )
            return
        try:
            self._store.check_link(manifest)
        except CheckpointDamagedError as error:
            problem = f"{manifest.link}: {error.problem}"
            yield Finding(
                severity="damage",
                object=f"{name}.json",
                problem=problem,
                lost=lost,
                fix=fix,
                checkpoint=(trial_name, number),
            )
        except OutsideStorageError as error:
            yield Finding(severity="note", object=f"{name}.json", problem=f"{error.path} {error.problem}")
        self._needed.update(self._store.addresses.object_key(manifest, each) for each in manifest.objects)
        self._checked.files += len(manifest.files)
        for index, problem in self._check_objects(manifest):
            names = [entry.path for entry in manifest.files_of(index)]
            yield Finding(
                severity="damage",
                object=f"checkpoints/{trial_name}/{manifest.objects[index].name}",
                problem=f"{problem}; it holds {show_names(names)}",
                lost=lost,
                fix=fix,
                checkpoint=(trial_name, number),
            )

    def _check_objects(self, manifest: Manifest) -> Iterator[tuple[int, str]]:
        for index, stored in enumerate(manifest.objects):
            key = self._store.addresses.object_key(manifest, stored)
            size_bytes = self._sizes.get(key)
            if size_bytes is None:  # it may have been written since the listing
                info = self._folder.store.head(key)
                size_bytes = info.size_bytes if info else None
            if size_bytes is None:
                yield index, "is missing"
            elif size_bytes != stored.size_bytes:
                yield index, f"{size_bytes} bytes instead of {stored.size_bytes}"
            elif not self._is_quick and (problem := self._read(manifest, index, key)):
                yield index, problem

    def _read(self, manifest: Manifest, index: int, key: str) -> str | None:
        """The problem of an object's content. What several checkpoints share is read once."""
        if key not in self._problems:
            self._checked.hashed_bytes += manifest.objects[index].size_bytes
            if self._on_read is not None:
                self._on_read("checking checkpoints", self._checked.hashed_bytes, self._total_bytes)
            try:
                self._store.check_object(manifest, index)
                self._problems[key] = None
            except CheckpointDamagedError as error:
                self._problems[key] = error.problem
        return self._problems[key]

    def _temporary_files(self) -> Iterator[Finding]:
        """The files that a process killed while it wrote left on a local disk; no listing shows them."""
        top = self._folder.store.local_path(self._folder.sweep_id)
        for path in sorted(top.rglob(f"{TEMPORARY_MARK}*")) if top is not None else ():
            if path.name.startswith(LOCK_MARK):
                continue
            try:
                status = path.stat()
            except FileNotFoundError:  # it got its name meanwhile
                continue
            name = path.relative_to(top).as_posix() if top is not None else path.name
            info = ObjectInfo(
                key=f"{self._folder.sweep_id}/{name}",
                size_bytes=status.st_size,
                modified_at=status.st_mtime,
            )
            yield self._orphan(name, "a write that was never finished", [info])

    def _orphan(self, name: str, problem: str, infos: list[ObjectInfo]) -> Finding:
        return Finding(
            severity="orphan",
            object=name,
            problem=problem,
            fix=PRUNE_FIX,
            size_bytes=sum(info.size_bytes for info in infos),
            mending="prune",
            keys=tuple(info.key for info in infos),
            modified_at=max(info.modified_at for info in infos),
        )

    def _name(self, key: str) -> str:
        return key.removeprefix(f"{self._folder.sweep_id}/")


def _consequence(trial: Trial | None, owner: str, number: int) -> tuple[str, str]:
    """The loss with checkpoint `number` of trial `owner`, which `trial` needs, and what is left."""
    if trial is None:
        return f"checkpoint {number}", "restore the object from a backup"
    what = f"checkpoint {number} of trial {int(owner)}"
    others = [each.number for each in trial.checkpoints if each.number != number]
    left = f"; whole or not, it has also {', '.join(map(str, others))}" if others else ""
    newest = trial.checkpoint
    if trial.state in FINAL:
        return what, f"the trial's results stand{left}"
    if newest is not None and newest.number == number:
        who = "the trial" if trial_id(trial.number) == owner else f"trial {trial.number}"
        problem = f"{who} continues from it: its next attempt will fail with CheckpointDamagedError"
        return what, f"{problem} unless the object is restored from a backup{left}"
    return what, f"the trial continues from a newer one{left}"
