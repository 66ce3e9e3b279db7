"""The decision of a task's try about what earlier tries left: attach, reuse, continue, or begin anew.

Airflow tries a task again by itself, and when a person clears it. Only a clear asks for anything to be done
again; it moves `max_tries`, a retry does not (`is_cleared`). Which one the last try saw is in a `Record`: in
the task state store, of which Airflow may delete rows, and beside the run in the storage. So is what a clear
asked for, until a try has carried it out: one that fails before leaves it to its retry (`due`).

| what is there                         | first try, retry | cleared                                     |
|---------------------------------------|------------------|---------------------------------------------|
| nothing, or a sweep without an end    | go               | go                                          |
| the same, of another spec             | go: refused      | go: refused; `on_clear="restart"`: restart  |
| a result                              | reuse            | as `on_clear` says                          |
| cancelled                             | reuse            | resume; `on_clear="restart"`: restart       |
| a deadline or budget, not enough done | reuse            | resume; `on_clear="restart"`: restart       |
| failed                                | reuse            | restart; `on_clear="retry"`: retry          |

A *run* that a person has deleted and Airflow has made again has the same ids, and so does one of another
Airflow: it begins anew, by a key of its own, whatever is there (`is_of_run`).

*go* submits or attaches; *reuse* ends as the sweep ended; *resume* continues with it where the engine can (it
was cancelled, or its limit was moved) and reuses it where not; *retry* continues too, and runs failed trials
again; *restart* begins a new one, by a new key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final, Literal, Self, get_args

from raysweep.outcome import SweepOutcome, TrainOutcome
from raysweep.step import verdict_of

OnClear = Literal["reuse", "resume", "retry", "restart"]
Do = Literal["go", "reuse", "resume", "retry", "restart"]
_SUFFIX: Final = re.compile(r"(@\d+)?(?:#\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The record of a task between its tries, in Airflow's task state store and beside its run."""

    max_tries: int
    """Airflow's; it changes when the task is cleared, and then only."""
    suffix: str = ""
    """The end of the key: `@` of a run that was made again, `#` since the last restart."""
    run_began: str = ""
    """The begin of the run in Airflow, by its `start_date`: a clear of an ended run moves it; ISO 8601."""
    scheduled_at: str = ""
    """The moment from which a deadline such as `06:00 Europe/Berlin` counts; ISO 8601."""
    ends_at: str | None = None
    """The moment that the task's `execution_timeout` means for the sweep; ISO 8601."""
    clear_number: int | None = None
    """Airflow's, of the run: how often tasks of it were cleared; None where that was not kept."""
    due: Do | None = None
    """The request of a clear that no try has carried out yet."""
    past: int | None = None
    """The generation of the outcome that `due` was decided on; None: there was none."""
    begun_at: str = ""
    """The begin of the first try, or of the first one since a clear; ISO 8601."""

    @classmethod
    def from_dict(cls, fields: Any) -> Self | None:
        """From what the store gave; None for nothing, or nothing of ours: people may edit it."""
        if not isinstance(fields, Mapping) or not isinstance(fields.get("max_tries"), int):
            return None
        known = cls.__dataclass_fields__
        found = cls(**{name: value for name, value in fields.items() if name in known})
        return found if found._is_ours() else None

    def _is_ours(self) -> bool:
        """True if the key that it gives is of the task's own, and the moments are moments."""
        if self.due is not None and self.due not in get_args(Do):
            return False
        try:
            if not _SUFFIX.fullmatch(self.suffix):
                return False
            others = (self.begun_at or self.scheduled_at, self.run_began or self.scheduled_at)
            for moment in (self.scheduled_at, *others, self.ends_at):
                if moment is not None and datetime.fromisoformat(moment).tzinfo is None:
                    return False
        except (TypeError, ValueError):
            return False
        return True

    def restarted(self, try_number: int) -> str:
        """The suffix of a restart by this try."""
        made = _SUFFIX.fullmatch(self.suffix)
        return f"{made[1] or ''}#{try_number}" if made is not None else f"#{try_number}"

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON data."""
        return asdict(self)


def is_of_run(kept: Record, *, run_began: str, clear_number: int | None, try_number: int) -> bool:
    """True if the record kept in the storage is of this run, and not of an earlier one of the same id.

    Airflow gives a run no identity but its ids. Its `start_date` is another one after a clear, which counts.
    """
    if run_began and kept.run_began == run_began:
        return True
    if try_number <= 1:
        return False  # no earlier try of this run has left anything
    if not (run_began and kept.run_began):
        return True
    return (clear_number or 0) > (kept.clear_number or 0)


def is_cleared(
    found: Record | None, *, max_tries: int, clear_number: int | None, try_number: int, retries: int
) -> bool:
    """True if a person has cleared the task since the last try.

    A clear sets `max_tries` to the tries so far plus the task's `retries`. Where those were lowered meanwhile
    it can be the same number as before: then the run's `clear_number`, which counts clears of any of its
    tasks, has moved, and `max_tries` is what a clear right before this try makes of it. Where nothing is kept
    of earlier tries, a run of which tasks were cleared is taken for one whose number has moved.
    """
    is_as_cleared = max_tries == try_number - 1 + retries
    if found is None:
        return try_number > 1 and bool(clear_number) and is_as_cleared
    if found.max_tries != max_tries:
        return True
    has_moved = None not in (found.clear_number, clear_number) and found.clear_number != clear_number
    return has_moved and is_as_cleared


def still_due(found: Record | None, ended: SweepOutcome | TrainOutcome | None) -> Do | None:
    """The work of an earlier try for a clear that is not done: the outcome it was about is still there.

    A newer outcome, or one where there was none, is how that ended.
    """
    if found is None or found.due is None:
        return None
    is_done = ended is not None and generation_of(ended) != found.past
    return None if is_done else found.due


def generation_of(outcome: SweepOutcome | TrainOutcome | None) -> int | None:
    """The controller that wrote it: each continuation of a sweep has a higher one."""
    return getattr(outcome, "generation", 0) if outcome is not None else None


def decide(
    ended: SweepOutcome | TrainOutcome | None,
    *,
    is_cleared: bool,
    on_clear: OnClear,
    accept_partial: bool,
    is_other: bool = False,
) -> Do:
    """The row of the table that fits; `is_other`: what has not ended is of another spec."""
    if ended is None:
        return "restart" if is_cleared and is_other and on_clear == "restart" else "go"
    if not is_cleared:
        return "reuse"
    verdict = verdict_of(ended, accept_partial=accept_partial)
    if on_clear == "retry" and isinstance(ended, SweepOutcome) and ended.status in ("failed", "completed"):
        return "retry"
    if on_clear == "restart" or ended.status == "failed":
        return "restart"
    if verdict.result == "success":
        return "reuse" if on_clear == "retry" else on_clear
    return "resume"
