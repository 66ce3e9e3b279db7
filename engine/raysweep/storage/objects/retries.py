"""Trying again what may pass: exponential pauses with jitter, up to 10 s, within a bound."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from raysweep.errors import StorageError

if TYPE_CHECKING:
    from tenacity import RetryCallState, Retrying

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
    # Imported only here: it brings asyncio, and most commands write nothing.
    import tenacity

    event = abort or threading.Event()

    def before_sleep(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if on_retry is not None and error is not None:
            on_retry(error)

    return tenacity.Retrying(
        retry=tenacity.retry_if_exception(_is_passing),
        wait=tenacity.wait_exponential(multiplier=0.1, max=MAX_PAUSE_S) + tenacity.wait_random(0, 0.1),
        stop=tenacity.stop_any(
            tenacity.stop_after_delay(give_up_after_s), tenacity.stop_when_event_set(event)
        ),
        sleep=tenacity.sleep_using_event(event),
        before_sleep=before_sleep,
        reraise=True,
    )


def _is_passing(error: BaseException) -> bool:
    return isinstance(error, StorageError) and error.retryable
