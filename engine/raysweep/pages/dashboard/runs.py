"""What the dashboard shows, read from the storage: the list of runs, one run, a log. Any thread may ask."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from raysweep.errors import RaysweepError, SweepNotFoundError
from raysweep.outcome.formatting import show_config
from raysweep.pages.document import make_document
from raysweep.pages.failures import config_pairs
from raysweep.pages.page import as_json
from raysweep.runs.across_runs.champions import list_champions
from raysweep.runs.folder import SweepFolder, list_sweeps
from raysweep.runs.reading.glances import glance, glance_training
from raysweep.runs.reading.logs import find_log, read_log
from raysweep.runs.reading.status import RunStatus
from raysweep.runs.reading.whole_sweep import WholeReader
from raysweep.runs.training import RunFolder, list_trainings
from raysweep.storage.objects.store import ObjectInfo, Store

FRESH_S: Final = 2.0
"""The list is read anew where it is older than that."""
PATIENCE_S: Final = 3.0
"""How long a request waits for all runs; later, it is told how many are still to come."""
LIST_POLL_S: Final = 5.0
RUN_POLL_S: Final = 3.0
KEPT_RUNS: Final = 8
_THREADS: Final = 8
_BUSY_SHARE: Final = 10.0
"""A run whose page takes a second to make is read every ten."""
MAX_LOG_BYTES: Final = 256 * 1024
_CHANGING: Final = frozenset(
    {"made_at", "read_at", "elapsed_s", "expected_end_at", "estimate", "timeline", "poll_s"}
)
"""What the time alone changes: running attempts grow in the timeline."""


@dataclass(frozen=True, slots=True)
class Answer:
    """JSON, and the digest of what it says apart from the time."""

    body: bytes
    version: str
    made_at: float


@dataclass(slots=True)
class _Run:
    reader: WholeReader
    lock: threading.Lock = field(default_factory=threading.Lock)
    answer: Answer | None = None
    took_s: float = 0.0
    has_ended: bool = False


class Runs:
    """The runs of one storage path."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._pool = ThreadPoolExecutor(_THREADS, "raysweep-dashboard")
        self._lock = threading.Lock()
        self._rows: dict[str, dict[str, Any]] = {}
        self._seen: dict[str, ObjectInfo] = {}
        self._pending: dict[str, Future[None]] = {}
        self._listed_at = 0.0
        self._runs: OrderedDict[str, _Run] = OrderedDict()

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
        shown = {"storage": self.store.url, "runs": rows, "left": left, "champions": self._champions()}
        return _answer({**shown, "poll_s": 1.0 if left else LIST_POLL_S})

    def _refresh(self) -> None:
        kinds = dict.fromkeys(list_sweeps(self.store), "sweep")
        kinds |= dict.fromkeys(list_trainings(self.store), "train")
        for name in [name for name in self._rows if name not in kinds]:
            del self._rows[name]
            self._seen.pop(name, None)
        for name, kind in kinds.items():
            self._pending[name] = self._pool.submit(self._look, name, kind)

    def _look(self, name: str, kind: str) -> None:
        """Read one run for the list; one that has ended only once."""
        try:
            seen = self.store.head(f"{name}/outcome.json")
            if seen is not None and self._seen.get(name) == seen and name in self._rows:
                return
            status = (
                glance(SweepFolder(self.store, name))
                if kind == "sweep"
                else glance_training(RunFolder(self.store, name))
            )
            row = _row(status)
        except RaysweepError as error:
            seen, row = None, _row(RunStatus(run_id=name, status="damaged", problem=str(error)))
        with self._lock:
            self._rows[name] = row
            if seen is not None:
                self._seen[name] = seen

    def _champions(self) -> list[dict[str, Any]]:
        return [
            {
                "name": each.name,
                "metric": each.metric,
                "mode": each.mode,
                "mean": each.mean,
                "sweep": each.sweep_id,
                "config": config_pairs(dict(each.config)),
            }
            for each in list_champions(self.store)
        ]

    # --- one run

    def run(self, name: str) -> Answer:
        """Everything of one run; a training's is short.

        Raises:
            SweepNotFoundError: There is no such run.
            RaysweepError: It cannot be read.
        """
        if not self.store.exists(f"{name}/sweep.json"):
            if name not in list_trainings(self.store):
                raise SweepNotFoundError(name, self.store.url)
            return _answer(_training(RunFolder(self.store, name)))
        run = self._kept(name)
        with run.lock:
            age = time.time() - run.answer.made_at if run.answer is not None else 0.0
            if run.answer is not None and age < max(FRESH_S, _BUSY_SHARE * run.took_s):
                return run.answer
            began = time.monotonic()
            whole = run.reader.read()
            document = make_document(whole)
            run.took_s = time.monotonic() - began
            run.has_ended = whole.status.has_ended
            poll_s = max(RUN_POLL_S, _BUSY_SHARE * run.took_s)
            run.answer = _answer({"view": "sweep", "document": document, "poll_s": poll_s})
            return run.answer

    def _kept(self, name: str) -> _Run:
        with self._lock:
            run = self._runs.pop(name, None) or _Run(WholeReader(SweepFolder(self.store, name)))
            self._runs[name] = run
            while len(self._runs) > KEPT_RUNS:
                self._runs.popitem(last=False)
            return run

    def log(self, name: str, trial: int, attempt: int | None) -> Answer:
        """The end of what a trial printed. Raises: LogNotFoundError, StorageError."""
        folder = SweepFolder(self.store, name)
        log = find_log(folder, trial, attempt)
        text = read_log(folder, log)
        data = text.encode() if text is not None else b""
        tail = data[-MAX_LOG_BYTES:].decode(errors="replace")
        return _answer(
            {
                "text": tail,
                "attempt": log.attempt,
                "is_final": log.is_final,
                "is_cut": len(data) > MAX_LOG_BYTES,
            }
        )


def _row(status: RunStatus) -> dict[str, Any]:
    best = status.best
    training = status.training
    return {
        "id": status.run_id,
        "kind": status.kind,
        "name": status.name or status.run_id,
        "key": status.key,
        "status": status.status,
        "is_running": status.is_running,
        "ended": status.counts.ended,
        "failed": status.counts.failed,
        "num_trials": status.num_trials,
        "metric": status.metric,
        "best": best.score if best is not None else None,
        "config": show_config(best.config if best is not None else training.metrics if training else {}),
        "started_at": status.started_at,
        "elapsed_s": status.elapsed_s if status.has_ended else None,
        "problem": status.problem or (status.error.line if status.error is not None else ""),
    }


def _training(folder: RunFolder) -> dict[str, Any]:
    status = glance_training(folder)
    training = status.training
    return {
        "view": "train",
        "run": _row(status),
        "uri": folder.uri,
        "reports": status.reports,
        "why": status.why,
        "metrics": config_pairs(dict(training.metrics)) if training is not None else [],
        "config": config_pairs(dict(training.config)) if training is not None else [],
        "model_uri": (training.model_uri or "") if training is not None else "",
        "traceback": (status.error.traceback or "") if status.error is not None else "",
        "notes": status.notes,
        "poll_s": RUN_POLL_S,
    }


def _answer(shown: Mapping[str, Any]) -> Answer:
    body = as_json(shown)
    said = orjson.dumps(_without_times(orjson.loads(body)))
    return Answer(body=body, version=hashlib.blake2b(said, digest_size=12).hexdigest(), made_at=time.time())


def _without_times(value: Any) -> Any:
    """What is said, apart from when: two answers that differ in that only are the same."""
    if isinstance(value, dict):
        return {key: _without_times(item) for key, item in value.items() if key not in _CHANGING}
    return value
