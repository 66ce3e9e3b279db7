"""The log of a Hugging Face `Trainer`: `log_history` in the `trainer_state.json` of its checkpoints.

The state of a checkpoint has the log up to it, also that of the attempts before: what the restored one has is
not read again. So reports and checkpoints always agree. A log that does not begin as the others do is of
another training: all of it is read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from raysweep.programs.doubts import Doubts
from raysweep.programs.readers.base import STEPS, Reader, Record

FILE: Final = "trainer_state.json"
_OF_WHOLE: Final = "train_runtime"
"""A metric of the entry that sums up the whole training, and is of no step."""


class TrainerStateReader(Reader):
    """All entries of one step are a record."""

    def __init__(self, folder: Path, restored: Path | None, doubts: Doubts | None = None) -> None:
        self._folder = folder
        self._doubts = doubts or Doubts(str(folder))
        self._logs: list[list[str]] = []
        """The log of each training, as far as it was read; an entry is compared as text, for NaN's sake."""
        if restored is not None and (log := _log_of(restored / FILE)):
            self._logs.append([json.dumps(entry) for entry in log])
        self._known: dict[Path, tuple[int, int, int]] = {}
        self._appeared = False

    def read(self, *, is_end: bool = False, is_whole: bool = True) -> list[Record]:
        """See `Reader`. A file counts once all of it is there, whatever `is_whole` says."""
        logs: list[list[Any]] = []
        for path in (*sorted(self._folder.glob(f"*/{FILE}")), self._folder / FILE):
            try:
                facts = path.stat()
            except OSError:
                continue
            self._appeared = True
            now = facts.st_size, facts.st_mtime_ns, facts.st_ino
            if self._known.get(path) == now:
                continue
            log = _log_of(path)
            if log is None:  # it is being written
                if is_end:
                    self._doubts.say(f"a {FILE} cannot be read, and is skipped")
                continue
            self._known[path] = now
            logs.append(log)
        # The longest first: the others of the same training are its beginning.
        return [
            record for log in sorted(logs, key=len, reverse=True) for record in _records(self._unread(log))
        ]

    def _unread(self, log: list[Any]) -> list[Any]:
        """The entries that no log of the same training had."""
        texts = [json.dumps(entry) for entry in log]
        shared = [_count_shared(texts, known) for known in self._logs]
        most = max(shared, default=0)
        if most == len(texts):
            return []
        if not most:
            if self._logs:
                self._doubts.say(
                    "there are logs of several trainings: the reports of one follow those of the other"
                )
            self._logs.append(texts)
            return log
        index = shared.index(most)
        if most < len(self._logs[index]):
            self._doubts.say("a training went back to an earlier step: later entries replace those after it")
        self._logs[index] = texts
        return log[most:]

    def missing(self) -> str:
        """See `Reader`."""
        if not self._appeared:
            return f"no {FILE} appeared in {self._folder} or a folder in it"
        return f"the log_history in {self._folder} has no entries"


def _count_shared(one: list[str], other: list[str]) -> int:
    """The number of entries that both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (mine, yours) in pairs if mine != yours), min(len(one), len(other)))


def _log_of(path: Path) -> list[Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    log = found.get("log_history") if isinstance(found, dict) else None
    return log if isinstance(log, list) else None


def _records(entries: list[Any]) -> list[Record]:
    """The entries of one step are a record; one that has a metric again begins another."""
    found: list[Record] = []
    for entry in entries:
        if not isinstance(entry, dict) or _OF_WHOLE in entry:
            continue
        last = found[-1] if found else {}
        if last and last.get("step") == entry.get("step") and not _metrics(last) & _metrics(entry):
            last |= entry
        else:
            found.append(dict(entry))
    return found


def _metrics(entry: Record) -> set[str]:
    return entry.keys() - set(STEPS)
