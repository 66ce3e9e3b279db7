"""Frames: cut anywhere, put together again; a stranger's bytes are refused."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep import messages as msg
from raysweep.worker.wire import (
    FROM_WORKER,
    HEADER,
    MAX_FRAME_BYTES,
    TO_WORKER,
    Decoder,
    FrameReader,
    dial,
    encode,
    pack,
    read_frames,
)

FAILURE = msg.FailureFacts(
    origin="exception", type="ValueError", message="é\n", bases=("ValueError", "Exception"), exit_code=3
)
FRAMES: list[list[msg.FromWorker]] = [
    [msg.Ready(node="n", pid=1)],
    [],
    [
        msg.TrialReported(trial=1, attempt=1, first=0, keys=("loss",), rows=[[0.5], [None]], is_waiting=True),
        msg.TrialReturned(trial=1, attempt=1),
    ],
    [msg.TrialFailed(trial=2, attempt=1, failure=FAILURE), msg.TrialsRecalled(trials=[3, 4])],
]
ORDERS: list[msg.ToWorker] = [
    msg.Job(trial=1, attempt=2, config={"x": [1, {"a": None}], "lr": 1e-300}, seed=2**63),
    msg.Stop(trial=1, attempt=2, reason="sweep", wants_checkpoint=True, allows="checkpoint"),
    msg.Interrupt(trial=1, attempt=2),
    msg.Kill(trial=1, attempt=2),
    msg.Answer(trial=1, attempt=2, report=7),
    msg.Recall(trials=[5]),
    msg.Exit(),
]


def test_a_frame_is_a_length_and_json() -> None:
    """The name first, then the fields in their order: whoever looks at a link can read it."""
    messages = [msg.TrialStarted(trial=3, attempt=2), msg.Stop(trial=3, attempt=2, reason="limit")]
    body = b'[["trialstarted",3,2],["stop",3,2,"limit",false,"nothing"]]'
    assert pack(messages) == struct.pack(">I", len(body)) + body


def test_orders_arrive_as_they_were_sent() -> None:
    assert list(FrameReader(TO_WORKER).feed(pack(ORDERS))) == [ORDERS]


def test_a_message_of_an_older_version_is_taken() -> None:
    """Fields that came later have defaults, and stand behind the others."""
    (job,) = TO_WORKER.decode(b'[["job",1,2,{"x":1},7]]')
    assert job == msg.Job(trial=1, attempt=2, config={"x": 1}, seed=7)


@pytest.mark.parametrize("depth", [500, 100_000])
def test_what_is_nested_too_deeply_is_refused_like_the_rest(depth: int) -> None:
    text = b"[" * depth + b"]" * depth
    decoder: Decoder[Any] = Decoder(Any)
    if depth < 1000:
        assert encode(decoder.decode(text)) == text
    else:
        with pytest.raises(ValueError, match="nested too deeply"):
            decoder.decode(text)


plain = st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
numbers = st.integers(min_value=-(2**63), max_value=2**64 - 1)
rows = st.lists(st.lists(plain | numbers | st.lists(plain) | st.dictionaries(st.text(), numbers)), max_size=5)


@given(rows)
def test_rows_arrive_bit_for_bit(rows: list[list[Any]]) -> None:
    sent = msg.TrialReported(trial=1, attempt=1, first=0, keys=("a", "é"), rows=rows)
    ((arrived,),) = FrameReader(FROM_WORKER).feed(pack([sent]))
    assert arrived == sent
    assert repr(arrived) == repr(sent), "-0.0 and 0.0, 1 and 1.0, 1 and True are equal, and not the same"


@pytest.mark.parametrize("cut", range(1, 12))
def test_frames_are_cut_anywhere(cut: int) -> None:
    stream = b"".join(map(pack, FRAMES))
    reader = FrameReader(FROM_WORKER)
    pieces = [stream[start : start + cut] for start in range(0, len(stream), cut)]
    assert [frame for piece in pieces for frame in reader.feed(piece)] == FRAMES


def test_all_that_is_complete_comes_at_once() -> None:
    reader = FrameReader(FROM_WORKER)
    first, *others = map(pack, FRAMES)
    assert list(reader.feed(first + others[0] + others[1][:-1])) == FRAMES[:2]
    assert list(reader.feed(others[1][-1:] + others[2])) == FRAMES[2:]


def test_the_largest_frame_there_may_be() -> None:
    """One byte more is a stranger's, and is not waited for."""
    assert MAX_FRAME_BYTES == 256 * 2**20
    assert list(FrameReader(FROM_WORKER).feed(HEADER.pack(MAX_FRAME_BYTES))) == []
    with pytest.raises(ValueError, match=f"frame of {MAX_FRAME_BYTES + 1} bytes"):
        list(FrameReader(FROM_WORKER).feed(HEADER.pack(MAX_FRAME_BYTES + 1)))


def test_a_socket_is_read_until_the_other_end_closes() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"".join(map(pack, FRAMES)))
        theirs.shutdown(socket.SHUT_WR)
        assert list(read_frames(ours, FROM_WORKER)) == FRAMES


def test_a_socket_that_is_closed_here_ends_it() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ours.close()
        assert list(read_frames(ours, FROM_WORKER)) == []


def test_a_small_message_waits_for_no_acknowledgement() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, dial(*server.getsockname()) as sock:
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.gettimeout() is None
