"""The page of one run, read again and again: for the dashboard and Airflow's page. Any thread may ask."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from raysweep.errors import SweepNotFoundError
from raysweep.outcome import Standing
from raysweep.pages.document import make_document
from raysweep.pages.failures import config_pairs
from raysweep.pages.page import as_json
from raysweep.runs.across_runs.verdicts import FOLDER as GATES
from raysweep.runs.folder import SweepFolder
from raysweep.runs.reading.whole_sweep import WholeReader
from raysweep.runs.reading.whole_training import read_run
from raysweep.runs.training import TRAIN_OUTCOME
from raysweep.storage.objects.store import ObjectInfo

SCRIPTS: Final = (
    "base.js",
    "plot.js",
    "charts.js",
    "parallel.js",
    "sections.js",
    "report.js",
    "live.js",
)
"""The parts of a page that follows a run; its own script comes after them."""
FRESH_S: Final = 2.0
"""A document is shared for so long."""
POLL_S: Final = 3.0
BUSY_SHARE: Final = 10.0
"""A document that takes a second to make is made every ten."""
_CHANGING: Final = frozenset(
    {"made_at", "read_at", "seen_at", "elapsed_s", "expected_end_at", "estimate", "timeline", "poll_s"}
)
"""The fields that change by time alone: running attempts grow in the timeline."""

_End = tuple[ObjectInfo, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """JSON, and the digest of what it says apart from the time."""

    body: bytes
    version: str
    made_at: float

    @property
    def envelope(self) -> bytes:
        """The answer for a page: the version, which it names when it asks again, and what is shown."""
        return b'{"version":"%s","shown":%b}' % (self.version.encode(), self.body)


@dataclass(frozen=True, slots=True)
class Seen:
    """The standing of a sweep, and the document of its page."""

    status: Standing
    document: Mapping[str, Any]
    poll_s: float
    """The seconds until the page asks again."""
    made_at: float


class LiveSweep:
    """One sweep whose page is open. A large one is read less often, an ended one once."""

    def __init__(self, folder: SweepFolder) -> None:
        self._folder = folder
        self._reader = WholeReader(folder, is_strict=False)
        self._lock = threading.Lock()
        self._seen: Seen | None = None
        self._end: _End | None = None
        """The end as it was stored before it was read."""
        self._took_s = 0.0

    def read(self) -> Seen | None:
        """The sweep now, or a few seconds ago; None where nothing of it is stored yet.

        Raises:
            StorageError, SweepDamagedError: It cannot be read.
        """
        with self._lock:
            seen = self._seen
            if seen is not None and time.time() - seen.made_at < max(FRESH_S, BUSY_SHARE * self._took_s):
                return seen
            end = self._look_at_end()
            if seen is not None and end is not None and end == self._end:
                return seen
            began = time.monotonic()
            try:
                whole = read_run(self._reader)
            except SweepNotFoundError:
                return None
            document = make_document(whole)
            self._took_s = time.monotonic() - began
            poll_s = POLL_S if end is not None else max(POLL_S, BUSY_SHARE * self._took_s)
            self._seen, self._end = Seen(whole.status, document, poll_s, time.time()), end
            return self._seen

    def _look_at_end(self) -> _End | None:
        """The objects of a run's end: its outcomes, and its gates' decisions. None: it has not ended."""
        store, sweep_id = self._folder.store, self._folder.sweep_id
        outcome = store.head(f"{sweep_id}/outcome.json")
        if outcome is None:
            return None
        is_training = self._seen is not None and self._seen.status.kind == "train"
        written = store.head(f"{sweep_id}/{TRAIN_OUTCOME}") if is_training else None
        ends = [outcome] if written is None else [outcome, written]
        return *ends, *sorted(store.list(f"{sweep_id}/{GATES}"), key=lambda info: info.key)


def training_document(status: Standing) -> dict[str, Any]:
    """The page's content for a full-scale training."""
    training = status.training
    return {
        "id": status.run_id,
        "name": status.name or status.run_id,
        "key": status.key,
        "status": status.status,
        "is_running": status.is_running,
        "problem": status.problem or (status.error.line if status.error is not None else ""),
        "traceback": (status.error.traceback or "") if status.error is not None else "",
        "started_at": status.started_at,
        "elapsed_s": status.elapsed_s,
        "read_at": status.read_at,
        "uri": status.uri,
        "reports": status.reports,
        "why": status.why,
        "metrics": config_pairs(dict(training.metrics)) if training is not None else [],
        "config": config_pairs(dict(training.config)) if training is not None else [],
        "model_uri": (training.model_uri or "") if training is not None else "",
        "notes": status.notes,
    }


def answer(shown: Mapping[str, Any]) -> Answer:
    """The shown content as JSON, with its digest."""
    body = as_json(shown)
    said = orjson.dumps(_without_times(orjson.loads(body)))
    return Answer(body=body, version=hashlib.blake2b(said, digest_size=12).hexdigest(), made_at=time.time())


def _without_times(value: Any) -> Any:
    """The content without its times: two answers that differ in these only are the same."""
    if isinstance(value, dict):
        return {key: _without_times(item) for key, item in value.items() if key not in _CHANGING}
    return value
