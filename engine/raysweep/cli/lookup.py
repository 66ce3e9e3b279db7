"""Sweeps by id, by the beginning of an id, or by the URI of their folder; and what is known of them.

Needs no Ray: a sweep that has not ended is read from its journal.
"""

from __future__ import annotations

import difflib
import time
from dataclasses import dataclass
from typing import Any, Final

from raysweep.core.result import trial_outcome
from raysweep.core.scores import ranked
from raysweep.core.state import SweepState
from raysweep.errors import SweepNotFoundError
from raysweep.outcome import Holder, SweepOutcome, SweepProgress, TrialOutcome
from raysweep.runs.folder import SweepFolder, SweepRecord, list_sweeps
from raysweep.runs.holder import find_living, holder_state
from raysweep.storage.store import open_store

DEFAULT_STORAGE: Final = "~/raysweep"
INTERRUPTED: Final = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepView:
    """What is known of one sweep. `status` is `interrupted` where it has not ended and nobody runs it.

    `best` may be a trial that still runs. `progress` is as fresh as the heartbeat; None before the first.
    `why` says why a sweep ended that has no outcome: it could give none, or its controller died right then.
    """

    sweep_id: str
    storage: str
    record: SweepRecord
    status: str
    metric: str
    trials: tuple[TrialOutcome, ...]
    best: TrialOutcome | None
    counts: dict[str, int]
    started_at: float | None
    outcome: SweepOutcome | None
    progress: SweepProgress | None
    is_running: bool = False
    why: str = ""
    notes: tuple[str, ...] = ()

    @property
    def uri(self) -> str:
        """Where it lies."""
        return f"{self.storage}/{self.sweep_id}"

    @property
    def holder(self) -> Holder | None:
        """Who ran it last, as far as known."""
        return self.progress.holder if self.progress else None


def open_sweep(name: str, storage: str | None) -> SweepFolder:
    """The folder of a sweep named by its id, an unambiguous beginning of it, or its folder's URI.

    Raises:
        SweepNotFoundError: None, or several; names those that come near.
    """
    parent, slash, last = name.rstrip("/").rpartition("/")
    store = open_store((parent or "/") if slash else storage or DEFAULT_STORAGE)
    wanted = last if slash else name
    if wanted and wanted not in (".", "..") and store.exists(f"{wanted}/sweep.json"):
        return SweepFolder(store, wanted)
    known = list_sweeps(store)
    found = [sweep for sweep in known if wanted and sweep.startswith(wanted)]
    if len(found) == 1:
        return SweepFolder(store, found[0])
    raise SweepNotFoundError(wanted or name, store.url, _fix(wanted, known, found))


def _fix(wanted: str, known: list[str], found: list[str]) -> str:
    if found:
        return f"it may be {_listed(found)}: give more of the id"
    if not known:
        return "there is no sweep at all: check --storage"
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    near += [sweep for sweep in known if sweep.rpartition("-")[0] == wanted and sweep not in near]
    if near:
        return f"did you mean {_listed(near)}?"
    return f"there are {_listed(known)}; or check --storage"


def _listed(names: list[str], limit: int = 5) -> str:
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def read_sweep(folder: SweepFolder, record: SweepRecord | None = None) -> SweepView:
    """Everything that the folder says of the sweep; replays the journal of one that has not ended.

    Raises:
        SweepNotFoundError: There is no such sweep (any more).
        StorageError, JournalDamagedError: It cannot be read.
    """
    record = record or folder.read_spec()
    if record is None:
        raise SweepNotFoundError(folder.sweep_id, folder.store.url)
    outcome = folder.read_outcome()
    progress = folder.read_progress()
    common: dict[str, Any] = {
        "sweep_id": folder.sweep_id,
        "storage": folder.store.url,
        "record": record,
        "outcome": outcome,
        "progress": progress,
        "metric": str(record.spec.get("metric", "metric")),
    }
    if outcome is not None:
        return SweepView(
            status=outcome.status,
            trials=outcome.trials,
            best=outcome.best,
            counts=outcome.counts,
            started_at=outcome.started_at,
            **common,
        )
    is_running = progress is not None and _is_alive(folder, progress)
    state, repairs = _replayed(folder, record)
    trials = tuple(trial_outcome(state, trial) for trial in state.trials.values())
    best = next(iter(ranked(state)), None)
    return SweepView(
        status=_status(state, progress if is_running else None),
        is_running=is_running,
        why=state.why if state.phase == "ended" else "",
        trials=trials,
        best=trial_outcome(state, best) if best else None,
        counts={name: number for name, number in state.counts.items() if number},
        started_at=state.started_at,
        notes=(*state.notes, *repairs),
        **common,
    )


def _is_alive(folder: SweepFolder, progress: SweepProgress) -> bool:
    """By one look, unless its clock is so far ahead that it takes two."""
    now = time.time()
    state = holder_state(progress, now)
    if state == "stale" and progress.at > now:
        return find_living(folder.read_progress) is not None
    return state == "alive"


def _replayed(folder: SweepFolder, record: SweepRecord) -> tuple[SweepState, list[str]]:
    from raysweep.runs.replay import replay
    from raysweep.schedulers import load_scheduler
    from raysweep.spec import SweepSpec

    # Whoever looks by hand may import it: what is on their path is theirs.
    load_scheduler(SweepSpec.from_any(dict(record.spec)))
    journal = folder.journal()
    return replay(journal, record), journal.repairs


def _status(state: SweepState, progress: SweepProgress | None) -> str:
    if progress is not None:
        return progress.status
    return state.status if state.phase == "ended" and state.status else INTERRUPTED
