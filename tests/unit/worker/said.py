"""A link that keeps the messages of a worker."""

from __future__ import annotations

from typing import Any

from raysweep.messages import (
    FromWorker,
)
from raysweep.worker.link import Take


class Said:
    """A link that keeps what is said."""

    def __init__(self) -> None:
        self.messages: list[FromWorker] = []
        self.rows = 0
        self.sent: list[tuple[int, tuple[str, ...], list[Any]]] = []

    def listen(self, take: Take, on_gone: Any) -> None:
        raise AssertionError("nobody listens here")

    def send(self, message: FromWorker, *, waits: bool = False) -> None:
        self.messages.append(message)

    def send_now(self, message: FromWorker) -> None:
        self.messages.append(message)

    def send_row(self, *row: Any) -> None:
        self.rows += 1
        self.sent.append(row[2:5])

    def close(self, timeout_s: float | None = 10.0) -> None:
        pass
