"""Frames: cut anywhere, put together again; a stranger's bytes are refused."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest

from raysweep.worker.wire import HEADER, MAX_FRAME_BYTES, FrameReader, pack, read_frames

FRAMES: list[list[list[Any]]] = [
    [["hello", "token", "worker"]],
    [],
    [["rows", 1, 1, 0, ["loss"], [[0.5], [None]], False], ["returned", 1, 1]],
]


def test_a_frame_is_a_length_and_json() -> None:
    assert pack([["a", 1]]) == struct.pack(">I", 9) + b'[["a",1]]'


@pytest.mark.parametrize("cut", range(1, 12))
def test_frames_are_cut_anywhere(cut: int) -> None:
    stream = b"".join(map(pack, FRAMES))
    reader = FrameReader()
    pieces = [stream[start : start + cut] for start in range(0, len(stream), cut)]
    assert [frame for piece in pieces for frame in reader.feed(piece)] == FRAMES


def test_all_that_is_complete_comes_at_once() -> None:
    reader = FrameReader()
    first, *others = map(pack, FRAMES)
    assert list(reader.feed(first + others[0] + others[1][:-1])) == FRAMES[:2]
    assert list(reader.feed(others[1][-1:])) == FRAMES[2:]


def test_the_largest_frame_there_may_be() -> None:
    """One byte more is a stranger's, and is not waited for."""
    assert MAX_FRAME_BYTES == 256 * 2**20
    assert list(FrameReader().feed(HEADER.pack(MAX_FRAME_BYTES))) == []
    with pytest.raises(ValueError, match=f"frame of {MAX_FRAME_BYTES + 1} bytes"):
        list(FrameReader().feed(HEADER.pack(MAX_FRAME_BYTES + 1)))


def test_a_socket_is_read_until_the_other_end_closes() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"".join(map(pack, FRAMES)))
        theirs.shutdown(socket.SHUT_WR)
        assert list(read_frames(ours)) == FRAMES


def test_a_socket_that_is_closed_here_ends_it() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ours.close()
        assert list(read_frames(ours)) == []
