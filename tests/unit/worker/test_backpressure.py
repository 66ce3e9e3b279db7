"""A controller that does not read: `report` waits, and what lies between is bounded in reports and bytes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest

from raysweep.errors import RaysweepError
from raysweep.messages import Job, TrialReported
from raysweep.worker.link import FRAME_BYTES, MAX_QUEUED_BYTES, MAX_QUEUED_ROWS, SocketLink
from raysweep.worker.process.forking import pass_on
from raysweep.worker.rows import MAX_ROW_BYTES
from raysweep.worker.session import Session
from raysweep.worker.shell import WorkerShell
from raysweep.worker.sweep_info import SweepPlace
from raysweep.worker.wire import FROM_WORKER, HEADER, read_frames

JOB = Job(trial=3, attempt=1, config={}, seed=1, checkpoint=None, iteration=0, next_checkpoint=0)
# What the kernel's buffers of one connection may hold, both ends together.
KERNEL_BYTES = 12 * 2**20


class Trial:
    """A trial that reports as fast as it can, on a thread; `reported` counts the calls that returned."""

    def __init__(self, link: socket.socket, metrics: Callable[[int], dict[str, Any]], reports: int) -> None:
        self.sender = SocketLink(link)
        self.reported = 0
        place = SweepPlace(sweep_id="s-1", storage_path="", resources={})
        session = Session(JOB, place, self.sender)

        def run() -> None:
            for number in range(reports):
                session.report(metrics(number), None, False)
                self.reported += 1

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def wait_until_blocked(self) -> int:
        """How many reports were taken before it could not continue."""
        while True:
            before = self.reported
            time.sleep(0.4)
            if self.reported == before:
                return before

    def finish(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()
        self.sender.close(timeout_s=None)


class Reader:
    """The controller's end, which reads only once it is told to."""

    def __init__(self, link: socket.socket) -> None:
        self.rows: list[Any] = []
        self._link = link
        self._thread = threading.Thread(target=self._read, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _read(self) -> None:
        for messages in read_frames(self._link, FROM_WORKER):
            for message in messages:
                if isinstance(message, TrialReported):
                    self.rows += message.rows


@pytest.fixture
def links() -> Iterator[Callable[[], tuple[socket.socket, socket.socket]]]:
    """Makes socket pairs."""
    made: list[socket.socket] = []

    def make() -> tuple[socket.socket, socket.socket]:
        pair = socket.socketpair()
        made.extend(pair)
        return pair

    yield make
    for end in made:
        end.close()


class Between:
    """The worker between a trial's own process and the controller."""

    def __init__(self, child: socket.socket, link: socket.socket) -> None:
        self.sender = SocketLink(link)
        self._link = link

        def run() -> None:
            pass_on(child, WorkerShell(self.sender))
            self.sender.close(timeout_s=None)
            self._link.shutdown(socket.SHUT_WR)

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()


Links = Callable[[], tuple[socket.socket, socket.socket]]


def row_of(size: int) -> Callable[[int], dict[str, Any]]:
    return lambda number: {"step": number, "text": "x" * size}


@pytest.mark.parametrize(
    ("metrics", "row_bytes", "reports"),
    [
        (lambda number: {"step": number, "loss": 0.5}, 10, 250_000),
        pytest.param(row_of(1_000), 1_000, 60_000, marks=pytest.mark.slow),
        (row_of(4_000_000), 4_000_000, 30),
    ],
    ids=["small", "middling", "large"],
)
@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_report_waits_until_the_controller_reads(
    isolation: str, metrics: Callable[[int], dict[str, Any]], row_bytes: int, reports: int, links: Links
) -> None:
    ours, theirs = links()
    reader = Reader(theirs)
    between = None
    if isolation == "process":
        child, parent = links()
        between = Between(parent, ours)
        trial = Trial(child, metrics, reports)
    else:
        trial = Trial(ours, metrics, reports)
    blocked_at = trial.wait_until_blocked()
    assert 0 < blocked_at < reports
    # Two queues, each with a frame that the kernel has not taken; the last report may go beyond the bound.
    hops = 2 if isolation == "process" else 1
    assert blocked_at * row_bytes <= hops * (MAX_QUEUED_BYTES + FRAME_BYTES + 3 * row_bytes + KERNEL_BYTES)
    reader.start()
    trial.finish()
    if between is not None:
        child.shutdown(socket.SHUT_WR)
        between.finish()
    else:
        ours.shutdown(socket.SHUT_WR)
    reader.finish()
    assert [row[0] for row in reader.rows] == list(range(reports))


def test_the_number_of_reports_is_bounded_too(links: Links) -> None:
    """As objects of Python, small ones take far more than their bytes on the link."""
    ours, theirs = links()
    trial = Trial(ours, lambda number: {}, 10 * MAX_QUEUED_ROWS)
    blocked_at = trial.wait_until_blocked()
    assert MAX_QUEUED_ROWS <= blocked_at < 10 * MAX_QUEUED_ROWS
    theirs.close()
    trial.finish()


def test_no_frame_is_larger_than_a_full_one_and_one_report(links: Links) -> None:
    ours, theirs = links()
    sizes: list[int] = []

    def read() -> None:
        stream = theirs.makefile("rb")
        while header := stream.read(HEADER.size):
            (size,) = HEADER.unpack(header)
            sizes.append(size)
            stream.read(size)

    trial = Trial(ours, row_of(300_000), 200)
    trial.wait_until_blocked()
    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    trial.finish()
    ours.shutdown(socket.SHUT_WR)
    thread.join(30)
    assert sum(sizes) > 200 * 300_000
    assert max(sizes) <= FRAME_BYTES + 301_000


def test_the_largest_report_arrives_whatever_lies_before_it(links: Links) -> None:
    ours, theirs = links()
    reader = Reader(theirs)
    trial = Trial(ours, row_of(MAX_ROW_BYTES - 100), 3)
    reader.start()
    trial.finish()
    ours.shutdown(socket.SHUT_WR)
    reader.finish()
    assert [(row[0], len(row[1])) for row in reader.rows] == [(n, MAX_ROW_BYTES - 100) for n in range(3)]


@pytest.mark.parametrize(
    ("metrics", "name"),
    [
        ({"loss": 0.5, "image": "x" * MAX_ROW_BYTES}, "'image'"),
        ({"a": ["x" * 9_000_000], "b": "x" * 9_500_000}, "'b'"),
        ({"x" * MAX_ROW_BYTES: 1.0}, "'xxx"),
    ],
    ids=["one value", "two together", "a name"],
)
@pytest.mark.parametrize("wait", [False, True])
def test_a_report_that_is_too_large_is_refused_in_user_code(
    metrics: dict[str, Any], name: str, wait: bool, links: Links
) -> None:
    ours, theirs = links()
    sender = SocketLink(ours)
    session = Session(JOB, SweepPlace(sweep_id="s-1", storage_path="", resources={}), sender)
    with pytest.raises(RaysweepError, match=rf"up to 16\.0 MiB.*metric {name}"):
        session.report(metrics, None, wait)
    # It was not queued, and the next one counts as if it had not been.
    session.report({"loss": 0.25}, None, False)
    sender.close()
    ours.shutdown(socket.SHUT_WR)
    (messages,) = read_frames(theirs, FROM_WORKER)
    assert messages == [TrialReported(trial=3, attempt=1, first=0, keys=("loss",), rows=[[0.25]])]


def test_odd_values_travel_as_they_are(links: Links) -> None:
    """Rows of plain numbers and rows that are encoded at once share a message."""
    ours, theirs = links()
    sender = SocketLink(ours)
    session = Session(JOB, SweepPlace(sweep_id="s-1", storage_path="", resources={}), sender)
    values: list[Any] = [0.5, "é", float("nan"), [1, {"a": None}], 2**70, True, None, -(2**63)]
    for value in values:
        session.report({"v": value}, None, False)
    sender.close()
    ours.shutdown(socket.SHUT_WR)
    reader = Reader(theirs)
    reader.start()
    reader.finish()
    rows = reader.rows
    assert rows == [
        [value] for value in [0.5, "é", "NaN", [1, {"a": None}], float(2**70), True, None, -(2**63)]
    ]
    assert orjson.loads(orjson.dumps(rows)) == rows
