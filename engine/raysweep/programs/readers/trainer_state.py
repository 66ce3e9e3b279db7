"""The log of a Hugging Face `Trainer`: `log_history` in the `trainer_state.json` of its checkpoints.

The state of a checkpoint has the log up to it, also that of the attempts before: what the restored one has is
not read again. So reports and checkpoints always agree.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from raysweep.programs.readers.base import Record

FILE: Final = "trainer_state.json"
_OF_WHOLE: Final = "train_runtime"
"""A metric of the entry that sums up the whole training, and is of no step."""


class TrainerStateReader:
    """All entries of one step are a record."""

    def __init__(self, folder: Path, restored: Path | None) -> None:
        self._folder = folder
        self._seen = len(_log_of(restored / FILE) or ()) if restored is not None else 0
        self._sizes: dict[Path, tuple[int, int]] = {}
        self._appeared = False

    def read(self, *, is_end: bool = False, is_whole: bool = True) -> list[Record]:
        """See `Reader`."""
        longest: list[Any] = []
        for path in (*self._folder.glob(f"*/{FILE}"), self._folder / FILE):
            try:
                facts = path.stat()
            except OSError:
                continue
            self._appeared = True
            now = (facts.st_size, facts.st_mtime_ns)
            if self._sizes.get(path) == now:
                continue
            log = _log_of(path)
            if log is None:  # it is being written
                continue
            self._sizes[path] = now
            if len(log) > len(longest):
                longest = log
        entries, self._seen = longest[self._seen :], max(self._seen, len(longest))
        return _records(entries)

    def close(self) -> None:
        """See `Reader`."""

    def missing(self) -> str:
        """See `Reader`."""
        if not self._appeared:
            return f"no {FILE} appeared in {self._folder} or a folder in it"
        return f"the log_history in {self._folder} has no entries"


def _log_of(path: Path) -> list[Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    log = found.get("log_history") if isinstance(found, dict) else None
    return log if isinstance(log, list) else None


def _records(entries: list[Any]) -> list[Record]:
    found: list[Record] = []
    for entry in entries:
        if not isinstance(entry, dict) or _OF_WHOLE in entry:
            continue
        if found and found[-1].get("step") == entry.get("step"):
            found[-1] |= entry
        else:
            found.append(dict(entry))
    return found
