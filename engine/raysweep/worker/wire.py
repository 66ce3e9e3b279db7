"""The encoding of messages: frames of JSON, nothing that is ever unpickled. No other module knows it.

A frame is a 4-byte big-endian length and a JSON array of messages (see `raysweep.messages`).
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from raysweep.messages import FromWorker, Hello, ToWorker

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
HEADER: Final = struct.Struct(">I")
MAX_FRAME_BYTES: Final = 256 * 1024 * 1024
_ENCODER: Final = msgspec.json.Encoder()


def dial(host: str, port: int, timeout_s: float = 30.0) -> socket.socket:
    """A socket to the controller. Small messages leave at once; only the connecting has a time limit.

    Raises:
        OSError: The controller cannot be reached.
    """
    sock = socket.create_connection((host, port), timeout=timeout_s)
    sock.settimeout(None)
    # Else the kernel holds a message back until the one before it is acknowledged.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class Decoder(Generic[T_co]):
    """Makes values of one type of the bytes that `encode` gave."""

    def __init__(self, kind: Any) -> None:
        self._decode = msgspec.json.Decoder(kind).decode

    def decode(self, data: bytes | memoryview) -> T_co:
        """The value.

        Raises:
            ValueError: the bytes are no such value; the message says why.
        """
        try:
            value: T_co = self._decode(data)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
        return value


HELLO: Final[Decoder[tuple[Hello]]] = Decoder(tuple[Hello])
FROM_WORKER: Final[Decoder[list[FromWorker]]] = Decoder(list[FromWorker])
TO_WORKER: Final[Decoder[list[ToWorker]]] = Decoder(list[ToWorker])


def encode(value: Any) -> bytes:
    """The value as JSON."""
    return _ENCODER.encode(value)


def pack(messages: Sequence[msgspec.Struct | msgspec.Raw]) -> bytes:
    """One frame; a message may be encoded already."""
    body = _ENCODER.encode(messages)
    return HEADER.pack(len(body)) + body


class FrameReader(Generic[T]):
    """Cuts a stream of bytes into frames of up to `max_bytes`."""

    __slots__ = ("_buffer", "decoder", "max_bytes")

    def __init__(self, decoder: Decoder[T], max_bytes: int = MAX_FRAME_BYTES) -> None:
        self.decoder = decoder
        self.max_bytes = max_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[T]:
        """Take bytes in; yield the messages of each frame that is complete now.

        Raises:
            ValueError: the stream is no stream of such frames; it is of no use any more.
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
                messages = self.decoder.decode(view[start + HEADER.size : end])
            start = end
            yield messages
        if start:
            del buffer[:start]


def read_frames(sock: socket.socket, decoder: Decoder[T]) -> Iterator[T]:
    """The frames of a blocking socket, until its other end closes.

    Raises:
        ValueError: what came is no frame of these messages.
    """
    reader = FrameReader(decoder)
    while True:
        try:
            data = sock.recv(1 << 18)
        except OSError:
            return
        if not data:
            return
        yield from reader.feed(data)
