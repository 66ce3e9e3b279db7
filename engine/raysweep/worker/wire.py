"""What goes over the link between controller and worker: frames of JSON, nothing that is ever unpickled.

A frame is a 4-byte big-endian length and a JSON array of messages; a message is an array whose first item
names it.

| from the worker | |
|---|---|
| `["hello", token, worker]` | the first frame: who connects, and that it may |
| `["ready", node, pid]`, `["unready", failure, node]` | the trainable is loaded; or cannot be |
| `["memory", bytes]` | the most that the trial's process has held |
| `["began", trial, attempt]` | user code runs |
| `["rows", trial, attempt, first, keys, rows, is_waiting]` | reports |
| `["busy", trial, attempt, is_over]` | it stores or fetches a checkpoint and cannot report |
| `["saved", trial, attempt, number, report, uri, size_bytes]` | a checkpoint is committed |
| `["unsaved", trial, attempt, number, problem]` | or could not be |
| `["returned", trial, attempt]`, `["stopped", trial, attempt, was_killed, where]` | the end |
| `["failed", trial, attempt, failure]` | or this |
| `["recalled", trials]` | these had not begun and are not in the queue any more |

| to the worker | |
|---|---|
| `["run", job]` | append to the queue |
| `["stop", trial, attempt, reason, to_checkpoint, allows]` | raise `TrialStopped`, as `core.stops` has it |
| `["interrupt", trial, attempt]` | raise it now, in the main thread |
| `["kill", trial, attempt]` | kill the trial's process (only where it has one of its own) |
| `["answer", trial, attempt, report]` | what the trial waits for is done |
| `["recall", trials]` | take these out of the queue |
| `["exit"]` | end the worker |
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson

HEADER: Final = struct.Struct(">I")
MAX_FRAME_BYTES: Final = 256 * 1024 * 1024
Message = list[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One attempt of one trial, as the worker gets it."""

    trial: int
    attempt: int
    config: dict[str, Any]
    seed: int
    checkpoint: str | None
    iteration: int
    next_checkpoint: int
    memory_limit_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A failure in the worker: the fields of `raysweep.core.failures.Failure` that it can know."""

    origin: str
    type: str
    message: str
    traceback: str = ""
    bases: tuple[str, ...] = ()
    exit_code: int | None = None
    is_fatal: bool = False
    memory_bytes: int | None = None


def to_bytes(value: Any) -> bytes:
    """JSON that may be kept: what orjson returns may hold eight times its length in memory."""
    return bytes(memoryview(orjson.dumps(value)))


def pack(messages: list[Message]) -> bytes:
    """One frame."""
    body = orjson.dumps(messages)
    return HEADER.pack(len(body)) + body


class FrameReader:
    """Cuts a stream of bytes into frames of up to `max_bytes`."""

    __slots__ = ("_buffer", "max_bytes")

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self.max_bytes = max_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[list[Message]]:
        """Take bytes in; yield the messages of each frame that is complete now.

        Raises:
            ValueError: the stream is no stream of frames (a stranger on the port).
        """
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= HEADER.size:
            (size,) = HEADER.unpack_from(buffer, start)
            if size > self.max_bytes:
                raise ValueError(f"frame of {size} bytes; at most {self.max_bytes} are taken here")
            end = start + HEADER.size + size
            if len(buffer) < end:
                break
            with memoryview(buffer) as view:
                messages = orjson.loads(view[start + HEADER.size : end])
            start = end
            yield messages
        if start:
            del buffer[:start]


def read_frames(sock: socket.socket) -> Iterator[list[Message]]:
    """The frames of a blocking socket, until its other end closes."""
    reader = FrameReader()
    while True:
        try:
            data = sock.recv(1 << 18)
        except OSError:
            return
        if not data:
            return
        yield from reader.feed(data)
