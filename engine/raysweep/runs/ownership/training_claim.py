"""Whose training run is it? Held by a process that lives: refuse. Otherwise claim it. Ended: its outcome.

`attempts/000001.json`, `000002.json`, … are a log, and the run's lock. Each number is created once, under a
condition that only one can win; none is ever deleted.

- A process takes the run by creating the number right after the one that it found at rest. Another process
  that was faster has that number: then it is judged anew.
- What is written over in the folder is replaced only in the version that was read before the look whether a
  newer attempt exists. So an attempt that was superseded, and does not know it yet, writes over nothing of
  the newer one's.
- A run that ended well ends the log: its outcome has the number that a newer attempt would need.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import orjson
from pydantic import ValidationError

from raysweep.errors import FencedError, StorageError, SweepHeldError, one_line
from raysweep.outcome import Holder, SweepProgress, TrainOutcome
from raysweep.runs.ownership.holder import POLL_S, current_holder, find_living, known_state
from raysweep.runs.training import FORMAT_VERSION, RunFolder, attempt_name
from raysweep.storage.objects.retries import retrying

# A process writes its heartbeat right after its claim; one that does not is gone.
FIRST_BEAT_S: Final = 10.0
GIVE_UP_AFTER_S: Final = 60.0
UPDATE_TRIES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The newest entry of a run's log."""

    number: int
    """From 1; 0 where there is none yet."""
    at: float = 0.0
    """When it was claimed, in UTC seconds by the holder's clock."""
    holder: Holder | None = None
    """Who claimed it."""
    outcome: TrainOutcome | None = None
    """How the run ended, if that is the entry."""


class Claim:
    """The right to write in a run's folder, as long as no other claim comes after it."""

    def __init__(self, folder: RunFolder, number: int) -> None:
        self.folder = folder
        self.number = number

    def check(self) -> None:
        """Raise FencedError if another process has claimed the run since."""
        newer = self.number + 1
        # Its own end has that number, too; a heartbeat may see it before `end` returns.
        if self.folder.has_attempt(newer) and self.folder.read_attempt(newer)["attempt"] != self.number:
            raise FencedError(self.folder.run_id, self.number, newer)

    def replace(self, name: str, data: bytes) -> None:
        """Create or replace an object of the folder, durably.

        Raises: FencedError if another process has claimed the run: then nothing of it is written over.
            StorageError.
        """
        self.update(name, lambda _: data)

    def update(self, name: str, change: Callable[[bytes | None], bytes | None]) -> None:
        """Replace an object of the folder by what `change` makes of it; None (if it is absent): leave it.

        Raises: as `replace`, and what `change` raises.
        """
        for _ in range(UPDATE_TRIES):
            found = self.folder.get_versioned(name)
            # After the read: what is written by one that claims after this look has another version.
            self.check()
            data = change(found[0] if found else None)
            if data is None or self.folder.put_if_version(name, data, found[1] if found else None):
                return
        raise StorageError(
            f"{self.folder.uri}/{name}",
            "is changed by others all the time",
            "keep what is not raysweep from writing there",
        )

    def end(self, outcome: TrainOutcome) -> None:
        """Write how the run ended, once and for all; from now on it cannot be claimed.

        Raises: FencedError if another process has claimed it. StorageError, also where the run's folder went
            away while it ran: what is written would make a new one that cannot be read.
        """
        if not retrying(GIVE_UP_AFTER_S)(self.folder.has_attempt, self.number):
            problem = "is gone: the run's folder was deleted, moved or unmounted while it ran"
            fix = "put the folder back, and run it again with the same key"
            raise StorageError(f"{self.folder.uri}/{attempt_name(self.number)}", problem, fix)
        record = {
            "attempt": self.number,
            "at": time.time(),
            "outcome": orjson.loads(self.folder.relative(outcome).to_json()),
        }
        if not _append(self.folder, self.number + 1, record):
            raise FencedError(self.folder.run_id, self.number, self.number + 1)
        self.folder.write_outcome(outcome)


def find_at_rest(folder: RunFolder, *, first_beat_s: float = FIRST_BEAT_S) -> Attempt:
    """The newest attempt, as soon as it is known that no process runs it; it may also be the run's end.

    Args:
        folder: The run.
        first_beat_s: How long a fresh claim counts as alive without a heartbeat.

    Raises: SweepHeldError while another live process has it.
    """
    newest = read_newest(folder)
    if newest.outcome is not None:
        # The process that ended the run may have been killed before it wrote this for everyone to read.
        folder.write_outcome(newest.outcome)
    elif newest.number:
        holder = _find_holder(folder, newest, first_beat_s)
        if holder is not None:
            raise SweepHeldError(folder.run_id, holder)
    return newest


def claim_run(folder: RunFolder, newest: Attempt) -> Claim | TrainOutcome:
    """Take the run that was found at rest after the attempt `newest`; its outcome, if it has ended since.

    Raises: SweepHeldError if another process took it first, and lives. StorageError.
    """
    while newest.outcome is None:
        number = newest.number + 1
        record = {"attempt": number, "at": time.time(), "holder": current_holder().model_dump()}
        if _append(folder, number, record):
            return Claim(folder, number)
        newest = find_at_rest(folder)
    return newest.outcome


def read_newest(folder: RunFolder) -> Attempt:
    """The newest entry of the run's log.

    Raises: StorageError if it is damaged.
    """
    number = folder.newest_attempt()
    if number == 0:
        return Attempt(number=0)
    record = folder.read_attempt(number)
    try:
        if "outcome" in record:
            return Attempt(
                number=number, outcome=folder.located(TrainOutcome.model_validate(record["outcome"]))
            )
        return Attempt(number=number, at=record["at"], holder=Holder.model_validate(record["holder"]))
    except (KeyError, TypeError, ValidationError) as error:
        raise folder.damaged(attempt_name(number), one_line(str(error))) from error


def _find_holder(folder: RunFolder, newest: Attempt, first_beat_s: float) -> Holder | None:
    deadline = time.monotonic() + first_beat_s
    while (sign := _newest_sign(folder, newest)).status == "starting":
        if known_state(sign) == "gone" or time.monotonic() > deadline:
            return None
        time.sleep(POLL_S)
    living = find_living(folder.read_progress)
    return None if living is None else living.holder


def _newest_sign(folder: RunFolder, newest: Attempt) -> SweepProgress:
    """The newest attempt's heartbeat; before the first one, what its claim says, as "starting"."""
    beat = folder.read_progress()
    if beat is not None and beat.generation >= newest.number:
        return beat
    assert newest.holder is not None  # it is no end
    return SweepProgress(
        sweep_id=folder.run_id,
        name=folder.run_id,
        status="starting",
        holder=newest.holder,
        generation=newest.number,
        at=newest.at,
        started_at=newest.at,
        metric="",
        mode="max",
    )


def _append(folder: RunFolder, number: int, record: dict[str, Any]) -> bool:
    """Create an entry of the log, durably; False if the number holds another writer's."""
    # A put of ours that seemed to fail but landed is known again by who wrote it.
    data = orjson.dumps({"format": FORMAT_VERSION, "writer": secrets.token_hex(8), **record})
    return retrying(GIVE_UP_AFTER_S)(folder.append_attempt, number, data)
