"""Trying again what may pass: exponential pauses with jitter, up to 10 s, within a bound."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    sleep_using_event,
    stop_after_delay,
    stop_any,
    stop_when_event_set,
    wait_exponential,
    wait_random,
)

from raysweep.errors import StorageError

MAX_PAUSE_S: Final = 10.0


def retrying(
    give_up_after_s: float,
    abort: threading.Event | None = None,
    on_retry: Callable[[BaseException], None] | None = None,
) -> Retrying:
    """`retrying(5.0)(store.get, key)` calls again after a retryable storage error.

    Raises the last one when time or `abort` ends it. `on_retry` hears of each error after which it is tried
    again.
    """
    event = abort or threading.Event()

    def before_sleep(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if on_retry is not None and error is not None:
            on_retry(error)

    return Retrying(
        retry=retry_if_exception(_is_passing),
        wait=wait_exponential(multiplier=0.1, max=MAX_PAUSE_S) + wait_random(0, 0.1),
        stop=stop_any(stop_after_delay(give_up_after_s), stop_when_event_set(event)),
        sleep=sleep_using_event(event),
        before_sleep=before_sleep,
        reraise=True,
    )


def _is_passing(error: BaseException) -> bool:
    return isinstance(error, StorageError) and error.retryable
