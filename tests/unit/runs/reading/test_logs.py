"""The logs of a sweep, found, read and followed in its folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from raysweep.errors import LogNotFoundError
from raysweep.runs.folder import SweepFolder
from raysweep.runs.reading.logs import find_log, follow_log, list_logs, read_log
from raysweep.storage.logs import LogText
from raysweep.storage.objects.opening import open_store


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    return SweepFolder(open_store(str(tmp_path)), "s-1")


def put(folder: SweepFolder, name: str, data: bytes) -> None:
    folder.store.put(f"s-1/logs/{name}", data)


def test_a_whole_log_counts_before_its_part(folder: SweepFolder) -> None:
    for name in ("00010-1.log", "00002-1.part.log", "00002-1.log", "00002-2.part.log", "other.txt"):
        put(folder, name, name.encode())
    shown = [(log.trial, log.attempt, log.is_final, log.size_bytes) for log in list_logs(folder)]
    assert shown == [(2, 1, True, 11), (2, 2, False, 16), (10, 1, True, 11)]
    assert find_log(folder, 2).attempt == 2
    text = read_log(folder, find_log(folder, 2, 1))
    assert text is not None
    assert text.encode() == b"00002-1.log"


def test_what_is_not_there_says_what_is(folder: SweepFolder) -> None:
    with pytest.raises(LogNotFoundError, match="no log of trial 3 of 's-1' is stored; the sweep has no logs"):
        find_log(folder, 3)
    put(folder, "00002-1.log", b"")
    with pytest.raises(LogNotFoundError, match="there are logs of the trials 2; one that printed nothing"):
        find_log(folder, 3)
    with pytest.raises(LogNotFoundError, match=r"no log of attempt 2 of trial 2 .* its attempts 1"):
        find_log(folder, 2, 2)


def test_following_gives_each_byte_once_until_the_attempt_is_over(folder: SweepFolder) -> None:
    steps: Iterator[bytes] = iter(
        [b"one\n", b"one\n", b"one\ntwo\n", LogText(head=b"one\n", left_out=90, tail=b"x\n").encode()]
    )

    def step() -> bool:
        data = next(steps, None)
        if data is None:
            put(folder, "00002-1.log", LogText(head=b"one\n", left_out=90, tail=b"x\nend\n").encode())
        else:
            put(folder, "00002-1.part.log", data)
        return True

    put(folder, "00002-1.part.log", b"one\n")
    heard = list(follow_log(folder, find_log(folder, 2), step, poll_s=0.0))
    assert heard == [b"one\n", b"two\n", b"\n[raysweep: 86 bytes are left out here]\nx\n", b"end\n"]


def test_following_ends_when_nobody_runs_the_sweep_any_more(folder: SweepFolder) -> None:
    put(folder, "00002-1.part.log", b"one\n")
    assert list(follow_log(folder, find_log(folder, 2), lambda: False, poll_s=0.0)) == [b"one\n"]
