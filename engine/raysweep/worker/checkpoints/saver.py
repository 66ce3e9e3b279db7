"""The checkpoints of one attempt, from `report` to the store: taken over or copied, waiting, stored, said."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from raysweep.errors import CheckpointDamagedError, RaysweepError, StorageError, one_line
from raysweep.messages import CheckpointCommitted, CheckpointFailed, Job, TrialNoted
from raysweep.storage.checkpoints.directory import scan_directory
from raysweep.worker.checkpoints.captures import TRIES, Capture, Captures, NoPlaceError
from raysweep.worker.checkpoints.staging import Staging
from raysweep.worker.checkpoints.uploader import Handover, UploadAbandonedError, Uploader
from raysweep.worker.link import Link
from raysweep.worker.sweep_info import SweepPlace
from raysweep.worker.waiting import Waiting

if TYPE_CHECKING:
    from raysweep.storage.checkpoints.manifest import Manifest
    from raysweep.storage.checkpoints.store import CheckpointRef, CheckpointStore
    from raysweep.storage.checkpoints.uploads import UploadLimits

_SHOWN_FILES: Final = 3


class Saver:
    """One attempt's. `newest`: what was saved last, else what the attempt began from."""

    def __init__(self, job: Job, place: SweepPlace, link: Link, waiting: Waiting) -> None:
        self.newest = job.checkpoint
        self._job = job
        self._trial_id = f"{job.trial:05d}"
        self._place = place
        self._link = link
        self._waiting = waiting
        self._next_number = job.next_checkpoint
        self._staging = Staging()
        self._captures = Captures(self._staging.make_folder, waiting.ending.raise_if_interrupted)
        self._uploader = Uploader(waiting.ending.changed, self._save_waiting, place.upload)
        self._taking = threading.Lock()
        """Held from a checkpoint's number until it waits: they are stored in the order of their numbers."""
        self._saving = threading.Lock()
        # The newest one that is stored, as it was when it was captured.
        self._parent: Manifest | None = None
        self._parent_capture: Capture | None = None
        self._limits: UploadLimits | None = None
        self._is_last_stored = False
        self._taken_bytes = 0

    # -- from the trial's threads ------------------------------------------------------------------

    @contextmanager
    def new_folder(self) -> Iterator[Path]:
        """A new, empty folder; what was not handed over by the end is removed."""
        # Where the last one would not fit once more, those that wait there make room first.
        if not self._uploader.is_idle and self._staging.free_bytes() < self._taken_bytes:
            self.flush()
        with ExitStack() as stack:
            try:
                folder = stack.enter_context(self._staging.new_folder())
            except OSError:
                if self._uploader.is_idle:
                    raise
                self.flush()
                folder = stack.enter_context(self._staging.new_folder())
            stack.enter_context(self._uploader.paused())
            yield folder

    def save(self, directory: Path, report: int, metrics: dict[str, Any], *, waits: bool) -> bool:
        """Have a checkpoint stored; whether it is by now. A trial survives one that cannot be.

        Raises: RaysweepError: it is not a directory, or one that cannot be kept.
        """
        if not directory.is_dir():
            raise RaysweepError(f"report(checkpoint=…) takes a directory; {str(directory)!r} is none")
        with self._taking:
            number = self._next_number
            self._next_number = number + 1
            handover = Handover(folder=directory, number=number, report=report, metrics=metrics)
            # One that was asked for ends the trial: it is waited for.
            if (waits or self._waiting.ending.is_asked) and not self._staging.is_ours(directory):
                return self._save_here(handover)
            with self._uploader.needed():
                self._waiting.until(lambda: self._uploader.has_room)
            try:
                handover.capture = self._take(directory, number)
            except NoPlaceError as full:
                self._note_no_place(full)
                return self._save_here(handover)
            is_awaited = waits or self._waiting.ending.is_asked
            for overtaken in self._uploader.add(handover, is_awaited=is_awaited):
                self._captures.release(overtaken.capture, is_stored=False)
        return self.flush() if is_awaited else False

    def save_link(self, uri: str, report: int, metrics: dict[str, Any]) -> bool:
        """Have the address of a checkpoint stored that user code has stored itself; whether it is.

        Raises: RaysweepError: nothing is stored there, or it is no address.
        """
        with self._taking:
            number = self._next_number
            self._next_number = number + 1
            self.flush()
            with self._saving, self._waiting.while_moving(says_end=False):
                saved = self._link_to(uri, number, self._metadata(report, metrics))
            return self._announce(number, report, metrics, saved)

    def save_parts(self, joined: Manifest, report: int, metrics: dict[str, Any]) -> bool:
        """Commit a checkpoint that the trial's workers have stored, under its own number.

        Raises: StorageError: its workers would continue from what no later attempt finds.
        """
        with self._taking:
            self._next_number = joined.number + 1
            self.flush()
            with self._saving, self._waiting.while_moving(says_end=False):
                saved = self._commit(joined, self._metadata(report, metrics))
            is_stored = self._announce(joined.number, report, metrics, saved)
        if isinstance(saved, StorageError):
            raise saved
        return is_stored

    def _commit(self, joined: Manifest, metadata: dict[str, Any]) -> CheckpointRef | StorageError:
        from raysweep.storage.checkpoints.store import CheckpointStore
        from raysweep.storage.objects.opening import open_store

        self._is_last_stored = False
        store = CheckpointStore(open_store(self._place.storage_path), self._place.sweep_id)
        try:
            return store.commit(replace(joined, metadata={**joined.metadata, **metadata}))
        except StorageError as error:
            return error

    def _link_to(self, uri: str, number: int, metadata: dict[str, Any]) -> CheckpointRef | StorageError:
        from raysweep.storage.checkpoints.store import CheckpointStore
        from raysweep.storage.objects.opening import open_store

        self._is_last_stored = False
        store = CheckpointStore(open_store(self._place.storage_path), self._place.sweep_id)
        try:
            return store.save_link(self._trial_id, number, uri, metadata)
        except CheckpointDamagedError as error:
            problem = f"nothing is stored at {uri!r}"
            raise RaysweepError(
                f"report(checkpoint_uri=…): {problem}: report what has been stored"
            ) from error
        except StorageError as error:
            return error

    def flush(self) -> bool:
        """Wait until all is stored that was handed over; whether the last one is."""
        with self._uploader.needed():
            self._waiting.until(lambda: self._uploader.is_idle)
        return self._uploader.is_idle and self._is_last_stored

    def finish(self) -> None:
        """User code has ended: what it handed over is stored, if there is the time, before that is said."""
        self.flush()
        self._uploader.close()
        self._staging.close()

    def _take(self, directory: Path, number: int) -> Capture:
        """Raises: NoPlaceError. SpecError: what is there cannot be kept, which is said where it was made."""
        if self._staging.is_ours(directory):
            files, _ = scan_directory(directory)
            try:
                capture = self._captures.adopt(self._staging.take(directory))
            except OSError as error:
                raise NoPlaceError(error.strerror or str(error)) from error
            self._taken_bytes = sum(os.stat(f"{capture.folder}/{path}").st_size for path in files)
            return capture
        with self._waiting.while_moving(), self._uploader.paused():
            capture = self._captures.take(directory)
        if capture.unsteady:
            self._note_unsteady(number, capture.unsteady)
        return capture

    def _save_here(self, handover: Handover) -> bool:
        """From the directory where it is, on the caller's thread, after those before it."""
        self.flush()
        # The caller waits: a pause of the uploader, while this or another thread writes, is not for this one.
        with self._uploader.needed(), self._saving, self._waiting.while_moving(says_end=False):
            handover.capture = self._captures.look(handover.folder)
            saved = self._store(handover)
        is_stored = self._announce_handed(handover, saved)
        self._captures.release(handover.capture, is_stored=is_stored)
        return is_stored

    def _note_no_place(self, full: NoPlaceError) -> None:
        text = (
            f"checkpoints were stored while the trial waited: {self._staging.parent} has no place for them"
            f" ({full.why}); make room there, or set RAYSWEEP_STAGING to a folder on another disk"
        )
        self._link.send(TrialNoted(*self._job.who, text=text))

    def _note_unsteady(self, number: int, unsteady: list[str]) -> None:
        names = ", ".join(unsteady[:_SHOWN_FILES])
        more = f" and {len(unsteady) - _SHOWN_FILES} more" if len(unsteady) > _SHOWN_FILES else ""
        text = (
            f"checkpoint {number}: {names}{more} changed while it was copied, {TRIES} times: what is stored"
            " may be a mixture; let nothing write to a directory until report() has returned"
        )
        self._link.send(TrialNoted(*self._job.who, text=text))

    # -- from the uploader's thread, or the trial's ------------------------------------------------

    def _save_waiting(self, handover: Handover) -> None:
        is_stored = False
        try:
            with self._saving, handover.context:
                is_stored = self._announce_handed(handover, self._store(handover))
        except UploadAbandonedError:
            raise
        except Exception as error:  # noqa: BLE001  said; the trial, which is elsewhere by now, continues
            self._uploader.go_on()
            problem = one_line(str(error), 500)
            self._link.send(CheckpointFailed(*self._job.who, number=handover.number, problem=problem))
        finally:
            self._captures.release(handover.capture, is_stored=is_stored)

    def _store(self, handover: Handover) -> CheckpointRef | StorageError:
        """Store a checkpoint; the error if that failed.

        One at a time: the newest one, which the next one refers to, must stay until that one is committed.
        """
        from raysweep.storage.checkpoints.node_cache import open_cache
        from raysweep.storage.checkpoints.store import CheckpointStore
        from raysweep.storage.objects.opening import open_store

        self._is_last_stored = False
        cache = open_cache()
        store = CheckpointStore(open_store(self._place.storage_path), self._place.sweep_id, cache=cache)
        parent, capture = self._find_parent(store), handover.capture
        carried = capture.carried(parent, self._parent_capture)
        if not capture.absent <= carried.keys():
            raise RaysweepError("the checkpoint before this one, which holds a part of it, is not there")
        metadata = self._metadata(handover.report, handover.metrics)
        try:
            return store.save(
                self._trial_id,
                handover.number,
                capture.folder,
                metadata,
                parent=parent,
                carried=carried,
                go_on=self._uploader.go_on,
                limits=self._find_limits(),
            )
        except StorageError as error:
            return error

    def _metadata(self, report: int, metrics: dict[str, Any]) -> dict[str, Any]:
        attempt, parent = self._job.attempt, self._job.checkpoint
        return {"attempt": attempt, "report": report, "metrics": metrics, "parent": parent}

    def _find_limits(self) -> UploadLimits:
        """Those of this attempt, which is all that its process stores at a time."""
        from raysweep.storage.checkpoints.bandwidth import Bandwidth
        from raysweep.storage.checkpoints.uploads import UploadLimits

        if self._limits is None:
            limit = self._place.upload_limit
            bandwidth = Bandwidth(limit) if limit is not None else None
            self._limits = UploadLimits(bandwidth=bandwidth)
        return self._limits

    def _announce_handed(self, handover: Handover, saved: CheckpointRef | StorageError) -> bool:
        """As `_announce`; what is stored is what was captured."""
        capture = handover.capture
        return self._announce(handover.number, handover.report, handover.metrics, saved, capture)

    def _announce(
        self,
        number: int,
        report: int,
        metrics: dict[str, Any],
        saved: CheckpointRef | StorageError,
        capture: Capture | None = None,
    ) -> bool:
        """Tell the controller; whether it is stored."""
        who = self._job.who
        if isinstance(saved, StorageError):
            self._link.send(CheckpointFailed(*who, number=number, problem=str(saved)))
            return False
        # Before it is announced, and the one before is let go.
        self.newest, self._parent, self._parent_capture = saved.reference, saved.manifest, capture
        self._is_last_stored = True
        ranks_by = self._place.ranks_by
        rank = _number(metrics.get(ranks_by)) if ranks_by else None
        score = self._score(metrics)
        self._link.send(
            CheckpointCommitted(*who, number, report, saved.reference, saved.size_bytes, score, rank)
        )
        return True

    def _score(self, metrics: dict[str, Any]) -> float | None:
        """By then the controller may know later reports, and not which one this belongs to."""
        return _number(metrics.get(self._place.metric)) if self._place.metric else None

    def read_metrics(self, reference: str) -> Mapping[str, Any]:
        """The report of a checkpoint; empty where that is out of reach."""
        from raysweep.storage.checkpoints.store import CheckpointStore
        from raysweep.storage.objects.opening import open_store

        store = CheckpointStore(open_store(self._place.storage_path), self._place.sweep_id)
        with suppress(StorageError):  # what needs its files meets the fault again, and says it
            metrics = store.read_manifest(reference).metadata.get("metrics")
            return metrics if isinstance(metrics, Mapping) else {}
        return {}

    def _find_parent(self, store: CheckpointStore) -> Manifest | None:
        """The trial's own newest checkpoint: what it holds need not be stored again.

        That of a trial whose checkpoint this one continues from is no parent: it is its owner's to delete.
        """
        newest = self.newest
        if self._parent is None and newest is not None and store.addresses.is_of(self._trial_id, newest):
            with suppress(StorageError):  # damaged or out of reach: then all is stored
                self._parent = store.read_manifest(newest)
        return self._parent


def _number(value: Any) -> float | None:
    """A finite number; None for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and isfinite(value) else None
