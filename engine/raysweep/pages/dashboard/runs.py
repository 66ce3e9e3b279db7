"""The content of the dashboard, read from the storage: the runs, one run, a log. Any thread may ask."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from raysweep.errors import SpecError, SweepNotFoundError
from raysweep.outcome import Standing
from raysweep.outcome.showing.formatting import show_config
from raysweep.pages.dashboard.nights import NightReader
from raysweep.pages.failures import config_pairs
from raysweep.pages.live import Answer, LiveSweep, Seen, answer
from raysweep.runs.across_runs.champions import list_champions
from raysweep.runs.folder import RECORDS, SweepFolder
from raysweep.runs.reading.listing import listed, read_run
from raysweep.runs.reading.logs import find_log, read_log
from raysweep.runs.reading.reader import SweepReader
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.objects.parallel import run_folders
from raysweep.storage.objects.store import Store

FRESH_S: Final = 2.0
"""The list is read anew where it is older than that."""
PATIENCE_S: Final = 3.0
"""The longest wait of a request for all runs; later, it is told how many are still to come."""
LIST_POLL_S: Final = 5.0
KEPT_RUNS: Final = 8
MAX_DOWNLOAD_BYTES: Final = 4_000_000_000
"""A larger checkpoint is fetched by `raysweep pull`: this server makes a copy of it first."""
_THREADS: Final = 8
MAX_LOG_BYTES: Final = 256 * 1024


class Runs:
    """The runs of one storage path."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._pool = ThreadPoolExecutor(_THREADS, "raysweep-dashboard")
        self._lock = threading.Lock()
        self._rows: dict[str, dict[str, Any]] = {}
        self._pending: dict[str, Future[None]] = {}
        self._downloads = threading.Semaphore(1)
        self._nights = NightReader(store)
        self._nights_lock = threading.Lock()
        self._listed_at = 0.0
        self._runs: OrderedDict[str, LiveSweep] = OrderedDict()
        self._answers: dict[str, tuple[Seen, Answer]] = {}

    def close(self) -> None:
        """End its threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    # --- the list

    def list_runs(self) -> Answer:
        """All runs, the newest first, and the champions. Raises: StorageError."""
        with self._lock:
            if time.monotonic() - self._listed_at >= FRESH_S and not self._pending:
                self._refresh()
                self._listed_at = time.monotonic()
            pending = list(self._pending.values())
        wait(pending, timeout=PATIENCE_S)
        with self._lock:
            self._pending = {name: each for name, each in self._pending.items() if not each.done()}
            rows = sorted(self._rows.values(), key=lambda row: (-(row["started_at"] or 0.0), row["id"]))
            left = len(self._pending)
        shown = {"storage": self.store.url, "runs": rows, "left": left, **self._champions()}
        return answer({**shown, "poll_s": 1.0 if left else LIST_POLL_S})

    def _refresh(self) -> None:
        """The runs that have ended by the catalog, an object for each name; the others one by one."""
        ids = run_folders(self.store)
        known, others = listed(self.store, ids)
        kept = {run_id: self._rows[run_id] for run_id in others if run_id in self._rows}
        self._rows = kept | {run_id: _row(run) for run_id, run in known.items()}
        self._pending = {run_id: self._pool.submit(self._look, run_id) for run_id in others}

    def _look(self, run_id: str) -> None:
        """Read a run that the catalog does not have."""
        run = read_run(self.store, run_id)
        with self._lock:
            if run is None:
                self._rows.pop(run_id, None)
            else:
                self._rows[run_id] = _row(run)

    def nights(self, name: str) -> Answer:
        """The sweeps of one name beside each other, the newest first, and its champions.

        Raises:
            SweepNotFoundError: There is none of this name.
            StorageError: The storage does not answer.
        """
        self.list_runs()
        with self._lock:
            found = [row for row in self._rows.values() if row["kind"] == "sweep" and row["name"] == name]
        if not found:
            raise SweepNotFoundError(name, self.store.url)
        found.sort(key=lambda row: (-(row["started_at"] or 0.0), row["id"]))
        ids = [row["id"] for row in found]
        with self._nights_lock:
            shown = self._nights.read(name, ids)
        every = self._champions()
        champions = [each for each in every["champions"] if each["name"] == name or each["sweep"] in ids]
        return answer({**shown, **every, "champions": champions, "poll_s": LIST_POLL_S})

    def _champions(self) -> dict[str, Any]:
        """The champions, and what is wrong with the lines that cannot be read."""
        lines = list_champions(self.store)
        champions = [
            {
                "name": each.name,
                "metric": each.metric,
                "mode": each.mode,
                "mean": each.mean,
                "sweep": each.sweep_id,
                "config": config_pairs(dict(each.config)),
            }
            for each in lines
        ]
        return {"champions": champions, "damaged": [str(error) for error in lines.damaged]}

    # --- one run

    def run(self, name: str) -> Answer:
        """Everything of one run; a training is shown as a sweep of one trial.

        Raises:
            SweepNotFoundError: There is no such run.
            RaysweepError: It cannot be read.
        """
        self.folder(name)
        seen = self._kept(name).read()
        if seen is None:
            raise SweepNotFoundError(name, self.store.url)
        made = self._answers.get(name)
        if made is None or made[0] is not seen:
            shown = {"view": "sweep", "document": seen.document, "poll_s": seen.poll_s}
            made = self._answers[name] = seen, answer(shown)
        return made[1]

    def folder(self, name: str) -> SweepFolder:
        """A run's folder. Raises: SweepNotFoundError, StorageError."""
        if not any(self.store.exists(f"{name}/{each}") for each in RECORDS):
            raise SweepNotFoundError(name, self.store.url)
        return SweepFolder(self.store, name)

    @contextmanager
    def checkpoint(self, name: str, trial: int) -> Iterator[Path]:
        """A folder with a trial's checkpoint, each byte checked; removed at the end.

        Raises:
            SweepNotFoundError: There is no such sweep.
            SpecError: The trial has no checkpoint, it is too large for this, or another one is on its way.
            CheckpointDamagedError, StorageError: It cannot be read.
        """
        folder = self.folder(name)
        trials = SweepReader(self.store.url, name).trials()
        uri = trials[trial].checkpoint_uri if trial < len(trials) else None
        if uri is None or not uri.startswith(f"{folder.uri}/"):
            raise SpecError(
                "trial", f"trial {trial} has no checkpoint in this sweep", "see `raysweep checkpoints`"
            )
        store = CheckpointStore(self.store, name)
        manifest, fix = store.read_manifest(uri), f"fetch it with: raysweep pull {uri} FOLDER"
        if manifest.link:
            raise SpecError("trial", f"it says that it stored its checkpoint itself, at {manifest.link}", fix)
        size = manifest.size_bytes
        if size > MAX_DOWNLOAD_BYTES:
            raise SpecError("trial", f"its checkpoint has {size / 1e9:.1f} GB, too much for a browser", fix)
        if not self._downloads.acquire(blocking=False):
            raise SpecError("trial", "another checkpoint is being fetched", f"try again later, or {fix}")
        try:
            with tempfile.TemporaryDirectory(prefix="raysweep-download-") as made:
                target = Path(made) / f"{name}-{trial:05d}"
                store.restore(uri, target)
                yield target
        finally:
            self._downloads.release()

    def _kept(self, name: str) -> LiveSweep:
        with self._lock:
            run = self._runs.pop(name, None) or LiveSweep(SweepFolder(self.store, name))
            self._runs[name] = run
            while len(self._runs) > KEPT_RUNS:
                left, _ = self._runs.popitem(last=False)
                self._answers.pop(left, None)
            return run

    def log(self, name: str, trial: int, attempt: int | None) -> Answer:
        """The end of what a trial printed. Raises: SweepNotFoundError, LogNotFoundError, StorageError."""
        folder = self.folder(name)
        log = find_log(folder, trial, attempt)
        text = read_log(folder, log)
        data = text.encode() if text is not None else b""
        tail = data[-MAX_LOG_BYTES:].decode(errors="replace")
        return answer(
            {
                "text": tail,
                "attempt": log.attempt,
                "is_final": log.is_final,
                "is_cut": len(data) > MAX_LOG_BYTES,
            }
        )


def _row(run: Standing) -> dict[str, Any]:
    return {
        "id": run.run_id,
        "kind": run.kind,
        "name": run.name or run.run_id,
        "key": run.key,
        "status": run.status,
        "is_running": run.is_running,
        "ended": run.counts.ended,
        "failed": run.counts.failed,
        "num_trials": run.num_trials,
        "metric": run.metric,
        "best": run.score,
        "config": show_config(run.config),
        "started_at": run.started_at,
        "elapsed_s": run.took_s,
        "problem": run.cause if run.status in ("failed", "damaged") else "",
    }
