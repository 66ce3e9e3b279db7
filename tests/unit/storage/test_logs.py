"""A log as text with its middle left out: written, read, and read on from any byte."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.storage.logs import LogText, decode_log, log_name, parse_log_name, read_bounded


def bounded(path: Path, data: bytes, limit: int) -> LogText:
    path.write_bytes(data)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return read_bounded(descriptor, limit)
    finally:
        os.close(descriptor)


def test_a_short_log_is_the_file(tmp_path: Path) -> None:
    text = bounded(tmp_path / "f", b"x" * 100, 100)
    assert (text.encode(), text.left_out, text.size_bytes) == (b"x" * 100, 0, 100)


def test_a_long_one_is_cut_at_lines(tmp_path: Path) -> None:
    data = b"".join(b"%09d\n" % number for number in range(1000))
    text = bounded(tmp_path / "f", data, 1001)
    assert text.size_bytes == len(data)
    assert len(text.head) + len(text.tail) <= 1001
    assert data.startswith(text.head)
    assert data.endswith(text.tail)
    assert text.head.endswith(b"000000024\n")
    assert text.tail.startswith(b"000000925\n")
    said = b"\n[raysweep: %d bytes are left out here]\n" % text.left_out
    assert text.encode() == text.head + said + text.tail


def test_one_without_lines_is_cut_where_it_must_be(tmp_path: Path) -> None:
    text = bounded(tmp_path / "f", bytes(range(100, 200)) * 1000, 4000)
    assert (len(text.head), len(text.tail), text.left_out) == (1000, 3000, 96_000)


texts = st.builds(
    LogText,
    head=st.binary(min_size=1, max_size=20),
    left_out=st.integers(min_value=0, max_value=1000),
    tail=st.binary(max_size=20),
).filter(lambda text: b"raysweep" not in text.head)


@given(texts)
def test_an_object_says_all_that_a_log_knows(text: LogText) -> None:
    found = decode_log(text.encode())
    assert found.encode() == text.encode()
    assert found.size_bytes == text.size_bytes


@given(texts, st.integers(min_value=0, max_value=1100))
def test_reading_on_gives_what_is_kept_from_there(text: LogText, position: int) -> None:
    start = len(text.head) + text.left_out
    rest = text.after(position)
    if position >= start:
        assert rest == text.tail[position - start :]
    elif not text.left_out:
        assert rest == (text.head + text.tail)[position:]
    else:
        assert rest.startswith(text.head[position:])
        missing = start - max(position, len(text.head))
        assert b"[raysweep: %d bytes are left out here]\n" % missing in rest
        assert rest.endswith(text.tail)


@pytest.mark.parametrize("is_final", [True, False])
@pytest.mark.parametrize(("trial", "number"), [("00017", 17), ("123456", 123456)])
def test_names(trial: str, number: int, is_final: bool) -> None:
    name = log_name(trial, 2, is_final=is_final)
    assert parse_log_name(name.removeprefix("logs/")) == (number, 2, is_final)


@pytest.mark.parametrize("name", ["17-2.log", "00017.log", "00017-2.txt", "00017-2.log.gz", "x00017-2.log"])
def test_other_names(name: str) -> None:
    assert parse_log_name(name) is None
