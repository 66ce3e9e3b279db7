"""The output of a sweep's trials, read from its folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from raysweep.errors import LogNotFoundError
from raysweep.runs.folder import SweepFolder
from raysweep.storage.logs import FOLDER, LogText, decode_log, log_name, parse_log_name

POLL_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogInfo:
    """The log of one attempt. `is_final`: the attempt is over, and this is all of it that is kept."""

    trial: int
    attempt: int
    is_final: bool
    size_bytes: int
    modified_at: float

    @property
    def name(self) -> str:
        """Its name in the sweep's folder."""
        return log_name(f"{self.trial:05d}", self.attempt, is_final=self.is_final)


def list_logs(folder: SweepFolder) -> list[LogInfo]:
    """All logs of a sweep, in the order of trials and attempts."""
    found: dict[tuple[int, int], LogInfo] = {}
    for info in folder.store.list(f"{folder.sweep_id}/{FOLDER}"):
        parsed = parse_log_name(info.key.rpartition("/")[2])
        if parsed is None:
            continue
        trial, attempt, is_final = parsed
        if is_final or (trial, attempt) not in found:
            found[trial, attempt] = LogInfo(
                trial=trial,
                attempt=attempt,
                is_final=is_final,
                size_bytes=info.size_bytes,
                modified_at=info.modified_at,
            )
    return [found[who] for who in sorted(found)]


def find_log(folder: SweepFolder, trial: int, attempt: int | None = None) -> LogInfo:
    """The log of an attempt of a trial, by default of the newest that has one.

    Raises:
        LogNotFoundError: There is none; the message lists those that exist.
    """
    logs = list_logs(folder)
    found = [log for log in logs if log.trial == trial and attempt in (None, log.attempt)]
    if found:
        return found[-1]
    attempts = [str(log.attempt) for log in logs if log.trial == trial]
    trials = sorted({log.trial for log in logs})
    if attempts:
        fix = f"there are logs of its attempts {', '.join(attempts)}"
    elif trials:
        shown = ", ".join(map(str, trials[:10])) + (", …" if len(trials) > 10 else "")
        fix = f"there are logs of the trials {shown}; one that printed nothing has none"
    else:
        fix = "the sweep has no logs: its trials printed nothing, or RAYSWEEP_LOG_BYTES is 0 where it runs"
    raise LogNotFoundError(folder.sweep_id, trial, attempt, fix)


def read_log(folder: SweepFolder, log: LogInfo) -> LogText | None:
    """The kept text of a log now; None where it is gone."""
    names = [log_name(f"{log.trial:05d}", log.attempt, is_final=is_final) for is_final in (True, False)]
    for name in names:
        data = folder.store.get(f"{folder.sweep_id}/{name}")
        if data is not None:
            return decode_log(data)
    return None


def follow_log(
    folder: SweepFolder, log: LogInfo, is_running: Callable[[], bool], *, poll_s: float = POLL_S
) -> Iterator[bytes]:
    """The content of a log, then what comes, until its attempt is over or the sweep does not run any more."""
    position = 0
    while True:
        # Asked before reading: what came in between is read.
        is_over = _is_final(folder, log) or not is_running()
        text = read_log(folder, log)
        if text is not None:
            if text.size_bytes > position:
                yield text.after(position)
            position = text.size_bytes
        if is_over:
            return
        time.sleep(poll_s)


def _is_final(folder: SweepFolder, log: LogInfo) -> bool:
    name = log_name(f"{log.trial:05d}", log.attempt)
    return folder.store.exists(f"{folder.sweep_id}/{name}")
