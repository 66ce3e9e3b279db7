"""A file of metrics that is not only appended to: written anew, rotated, shared, linked, or not text."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.errors import ProgramFailedError
from raysweep.programs.claims import claimed
from raysweep.programs.doubts import Doubts
from raysweep.programs.readers.jsonl import JsonlReader
from raysweep.programs.readers.rewritten import count_repeated

Write = Callable[[Path, list[int]], None]
ANEW = (
    "m.jsonl: the file was written anew: rows that it repeats count once,"
    " and rows that stood in it only for a moment are missing; append to it"
)


def lines(rows: list[int]) -> str:
    return "".join(f'{{"i": {row}, "loss": {row / 8}}}\n' for row in rows)


def truncate(path: Path, rows: list[int]) -> None:
    path.write_text(lines(rows))


def rename_over(path: Path, rows: list[int]) -> None:
    path.with_suffix(".new").write_text(lines(rows))
    os.replace(path.with_suffix(".new"), path)


def delete_first(path: Path, rows: list[int]) -> None:
    path.unlink(missing_ok=True)
    path.write_text(lines(rows))


def relink(path: Path, rows: list[int]) -> None:
    target = path.with_name(f"v{rows[-1]}")
    target.write_text(lines(rows))
    path.unlink(missing_ok=True)
    path.symlink_to(target)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def reader(tmp_path: Path, said: list[str]) -> Iterator[JsonlReader]:
    made = JsonlReader(tmp_path / "m.jsonl", Doubts("m.jsonl", said.append))
    yield made
    made.close()


def numbers(records: list[dict[str, Any]]) -> list[int]:
    return [record["i"] for record in records]


@pytest.mark.parametrize("write", [truncate, rename_over, delete_first, relink])
@pytest.mark.parametrize(("kept", "doubts"), [(3, [ANEW]), (9, [])], ids=["newest", "whole"])
def test_a_file_that_is_written_anew_has_each_row_once(
    reader: JsonlReader, said: list[str], tmp_path: Path, write: Write, kept: int, doubts: list[str]
) -> None:
    found = []
    for last in range(7):
        write(tmp_path / "m.jsonl", list(range(max(last - kept + 1, 0), last + 1)))
        found += numbers(reader.read())
    assert found + numbers(reader.read(is_end=True)) == list(range(7))
    assert said == doubts


def test_a_look_in_the_middle_of_writing_anew_counts_nothing_twice(
    reader: JsonlReader, said: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text(lines([0, 1, 2, 3]))
    found = numbers(reader.read())
    whole = lines([1, 2, 3, 4, 5])
    for size in range(len(whole) + 1):
        path.write_text(whole[:size])
        found += numbers(reader.read())
    assert found == [0, 1, 2, 3, 4, 5]
    assert said == [ANEW]


def rotate_by_copy(path: Path) -> None:
    path.with_suffix(".1").write_bytes(path.read_bytes())
    os.truncate(path, 0)


def rotate_by_rename(path: Path) -> None:
    os.replace(path, path.with_suffix(".1"))
    path.touch()


@pytest.mark.parametrize("rotate", [rotate_by_copy, rotate_by_rename])
def test_a_rotated_file_is_read_on(
    reader: JsonlReader, said: list[str], tmp_path: Path, rotate: Callable[[Path], None]
) -> None:
    path = tmp_path / "m.jsonl"
    found = []
    for first in (0, 2):
        with open(path, "a") as file:
            file.write(lines([first, first + 1]))
        found += numbers(reader.read())
        rotate(path)
    with open(path, "a") as file:
        file.write(lines([4]))
    assert found + numbers(reader.read(is_end=True)) == [0, 1, 2, 3, 4]
    assert said == [ANEW]


def test_what_is_written_to_a_file_that_was_renamed_or_deleted_is_read(
    reader: JsonlReader, tmp_path: Path
) -> None:
    path = tmp_path / "m.jsonl"
    with open(path, "a", buffering=1) as file:
        file.write(lines([0]))
        assert numbers(reader.read()) == [0]
        os.replace(path, tmp_path / "m.jsonl.1")
        file.write(lines([1]))
        path.write_text(lines([2]))
        assert numbers(reader.read()) == [1, 2]
    with open(path, "a", buffering=1) as file:
        path.unlink()
        file.write(lines([3]))
        assert numbers(reader.read()) == [3]


ODD = "lines that are no JSON objects are skipped"
TEXTS: list[tuple[bytes, list[Any], list[str]]] = [
    (b'\xef\xbb\xbf{"i": 1}\r\n{"i": 2}\r\n', [1, 2], []),
    (b'{"i": NaN}\n{"i": Infinity}\n{"i": -Infinity}\n', ["nan", "inf", "-inf"], []),
    ('{"i": 1, "who": "caf\xe9"}\n'.encode("latin-1"), [1], ["bytes that are not UTF-8 are read as \ufffd"]),
    (b'epoch 1\n[1]\n3\n{}\n{"i": 1}\n', [1], [ODD]),
    (b'{"i": {"i": 2}\n"i": 3}\n{"i": 4}\n', [4], [ODD]),  # two writers in one line
    (b"[" * 100_000 + b'\n{"i": ' + b"9" * 5000 + b'}\n{"i": 1}\n', [1], [ODD]),
]


@pytest.mark.parametrize(("text", "found", "doubts"), TEXTS)
def test_text_that_is_odd_is_read_or_named(
    reader: JsonlReader, said: list[str], tmp_path: Path, text: bytes, found: list[Any], doubts: list[str]
) -> None:
    (tmp_path / "m.jsonl").write_bytes(text)
    read = numbers(reader.read(is_end=True))
    assert [str(number) if isinstance(number, float) else number for number in read] == found
    assert said == [f"m.jsonl: {text}" for text in doubts]


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_what_is_no_file_is_named(
    reader: JsonlReader, said: list[str], tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "m.jsonl")
    assert reader.read(is_end=True) == []
    assert said == ["m.jsonl: the file cannot be read: it is no regular file"]
    assert "it is no regular file" in reader.missing()


small = st.lists(st.integers(0, 2), max_size=12)


@given(small, small, st.integers(0, 12))
def test_repeated_lines_are_the_longest_that_end_the_old_and_begin_the_new(
    before: list[int], now: list[int], newest: int
) -> None:
    last = before[-max(newest, len(now)) :]
    inside = any(last[at : at + len(now)] == now for at in range(len(last) - len(now) + 1))
    inside = inside or before[: len(now)] == now
    ends = [
        size for size in range(min(len(before), len(now)) + 1) if before[len(before) - size :] == now[:size]
    ]
    if now:
        assert count_repeated(before, now, newest) == (None if inside else max(ends))


def test_a_file_of_one_row_costs_a_row_each_time_it_is_written_anew() -> None:
    class Counted(list[int]):
        taken = 0

        def __getitem__(self, index: Any) -> Any:
            found = super().__getitem__(index)
            self.taken += len(found) if isinstance(index, slice) else 1
            return found

    before = Counted(range(100_000))
    assert count_repeated(before, [-1], 1) == 0
    assert before.taken == 2


def test_a_row_of_long_ago_that_comes_again_alone_counts(reader: JsonlReader, tmp_path: Path) -> None:
    for row in (1, 2, 3, 2):
        (tmp_path / "m.jsonl").write_text(lines([row]))
        assert numbers(reader.read()) == [row]


def test_one_trial_of_a_node_reads_a_path_at_a_time(tmp_path: Path) -> None:
    shared, own = tmp_path / "m.jsonl", tmp_path / "own"
    own.mkdir()
    (tmp_path / "link").symlink_to(shared)
    with claimed([("program.metrics.jsonl", shared), ("x", own / "m.jsonl")], own):
        with claimed([("x", own / "m.jsonl"), ("x", tmp_path / "other")], own):
            pass
        again = claimed([("program.metrics.jsonl", tmp_path / "link")], own)
        text = r"program.metrics.jsonl: another trial on this node reads .*m.jsonl now"
        with pytest.raises(ProgramFailedError, match=text), again:
            pass
    with claimed([("program.metrics.jsonl", shared)], own):
        pass
