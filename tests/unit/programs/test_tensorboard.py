"""Event files of TensorBoard: whose curve a value is of, and bytes that are no events."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.errors import ProgramFailedError
from raysweep.programs.doubts import Doubts
from raysweep.programs.readers.curves import Curves
from raysweep.programs.readers.events import Scalar, records_of, scalars_of
from raysweep.programs.readers.tensorboard import TensorBoardReader
from tests.growth import LIMIT, exponent

tensorboardX = pytest.importorskip("tensorboardX")


def reader_of(folder: Path, *ranked: str) -> tuple[TensorBoardReader, list[str]]:
    said: list[str] = []
    return TensorBoardReader(folder, Doubts("runs", said.append), ranked), said


def writers(folder: Path, *names: str) -> list[Any]:
    return [tensorboardX.SummaryWriter(str(folder / name), filename_suffix=f".{name}") for name in names]


def close(*given: Any) -> None:
    for writer in given:
        writer.close()


def test_a_tag_of_two_folders_is_two_metrics_and_says_so(tmp_path: Path) -> None:
    """As Keras' callback writes `epoch_loss`, and `add_scalars` a folder for each curve."""
    reader, said = reader_of(tmp_path)
    train, validation = writers(tmp_path / "fit" / "20261128", "train", "validation")
    for step in range(3):
        train.add_scalar("epoch_loss", 0.25, step)
        validation.add_scalar("epoch_loss", 0.75, step)
        validation.add_scalar("auc", 0.5, step)
    close(train, validation)
    expected = {"train/epoch_loss": 0.25, "validation/epoch_loss": 0.75, "auc": 0.5}
    assert reader.read(is_end=True) == [{"step": step} | expected for step in range(3)]
    names = "['train/epoch_loss', 'validation/epoch_loss']"
    assert said == [f"runs: the tag 'epoch_loss' is written in several folders: its metrics are {names}"]


def test_the_writer_of_the_upper_folder_keeps_its_tag(tmp_path: Path) -> None:
    reader, _ = reader_of(tmp_path)
    upper, lower = writers(tmp_path, "", "eval")
    upper.add_scalar("loss", 0.25, 1)
    upper.add_scalar("eval/loss", 0.125, 1)
    lower.add_scalar("loss", 0.75, 1)
    close(upper, lower)
    assert reader.read(is_end=True) == [{"step": 1, "loss": 0.25, "eval/loss": 0.125, "eval:loss": 0.75}]


def test_a_metric_that_ranks_and_proves_to_be_two_curves_ends_the_trial(tmp_path: Path) -> None:
    reader, _ = reader_of(tmp_path, "loss")
    (train,) = writers(tmp_path, "train")
    train.add_scalar("loss", 0.25, 0)
    train.add_scalar("loss", 0.25, 1)
    close(train)
    assert reader.read() == [{"step": 0, "loss": 0.25}]
    (validation,) = writers(tmp_path, "validation")
    validation.add_scalar("loss", 0.75, 0)
    close(validation)
    with pytest.raises(ProgramFailedError, match="rank by one of them: train/loss, validation/loss"):
        reader.read()


def test_two_writers_at_once_in_one_folder_are_two_curves(tmp_path: Path) -> None:
    """As the ranks of a program that all write."""
    reader, said = reader_of(tmp_path)
    one, two = (tensorboardX.SummaryWriter(str(tmp_path), filename_suffix=f".{n}") for n in range(2))
    for step in range(3):
        one.add_scalar("loss", 0.25, step)
        two.add_scalar("loss", 0.75, step)
    close(one, two)
    assert reader.read(is_end=True) == [{"step": step, "loss": 0.25, "loss#2": 0.75} for step in range(3)]
    text = "runs: the tag 'loss' is written by several writers at once in one folder"
    assert said == [f"{text}: that of a later one is 'loss#2'"]


def test_a_writer_that_continues_after_another_is_the_same_curve(tmp_path: Path) -> None:
    reader, said = reader_of(tmp_path)
    for number in range(2):
        with tensorboardX.SummaryWriter(str(tmp_path), filename_suffix=f".{number}") as writer:
            for step in range(2):
                writer.add_scalar("loss", 0.5, 2 * number + step)
        assert reader.read()
    reader.read(is_end=True)
    assert not said


def test_values_without_a_step_are_a_report_each_and_the_tag_step_is_renamed(tmp_path: Path) -> None:
    reader, said = reader_of(tmp_path)
    with tensorboardX.SummaryWriter(str(tmp_path)) as writer:
        for value in (0.5, 0.25):
            writer.add_scalar("loss", value, None)
        writer.add_scalar("step", 7.0, -1)
    found = reader.read(is_end=True)
    assert found == [{"step": 0, "loss": 0.5}, {"step": 0, "loss": 0.25}, {"step": -1, "scalars/step": 7.0}]
    assert any("give add_scalar the step" in text for text in said)
    assert any("'scalars/step'" in text for text in said)


def test_links_to_a_file_do_not_count_it_twice_and_what_is_no_file_is_left_alone(tmp_path: Path) -> None:
    reader, _ = reader_of(tmp_path)
    with tensorboardX.SummaryWriter(str(tmp_path / "runs")) as writer:
        writer.add_scalar("loss", 0.5, 1)
    (file,) = (tmp_path / "runs").iterdir()
    (tmp_path / "latest.tfevents").symlink_to(file)
    (tmp_path / "gone.tfevents").symlink_to(tmp_path / "nothing")
    (tmp_path / "again").symlink_to(tmp_path / "runs")
    os.mkfifo(tmp_path / "pipe.tfevents")
    (tmp_path / "folder.tfevents").mkdir()
    assert reader.read(is_end=True) == [{"step": 1, "loss": 0.5}]


def written(folder: Path) -> bytes:
    with tensorboardX.SummaryWriter(str(folder)) as writer:
        for step in range(3):
            writer.add_scalar("loss", 0.5, step)
    (file,) = folder.iterdir()
    return file.read_bytes()


def test_a_file_that_is_cut_anywhere_loses_no_whole_event_and_ends_nothing(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole")
    events, _, _ = records_of(whole)
    assert len(events) >= 4
    for size in range(len(whole)):
        records, read, wanted = records_of(whole[:size])
        assert records == events[: len(records)]
        assert read <= size
        assert wanted == read or size < (wanted or 0) <= len(whole)
    for event in events:
        for size in range(len(event)):
            is_readable(event[:size])


def is_readable(event: bytes) -> bool:
    try:
        return scalars_of(event) is not None
    except ValueError:
        return False


@given(st.binary(max_size=200))
def test_bytes_that_are_no_event_raise_nothing_but_that(data: bytes) -> None:
    is_readable(data)


@given(st.data())
def test_an_event_with_other_bytes_in_it_raises_nothing_but_that(data: st.DataObject) -> None:
    tensor = b"\x08\x01\x22\x04" + struct.pack("<f", 0.5)
    values = [
        b"\x0a\x04loss\x15" + struct.pack("<f", 0.5),
        b"\x0a\x03acc\x42" + bytes([len(tensor)]) + tensor,
    ]
    summary = b"".join(b"\x0a" + bytes([len(value)]) + value for value in values)
    event = bytearray(b"\x09" + b"\0" * 8 + b"\x10\x05\x2a" + bytes([len(summary)]) + summary)
    assert [(found.tag, found.value) for found in scalars_of(bytes(event))] == [("loss", 0.5), ("acc", 0.5)]
    for _ in range(data.draw(st.integers(1, 4))):
        event[data.draw(st.integers(0, len(event) - 1))] = data.draw(st.integers(0, 255))
    is_readable(bytes(event))


def test_a_short_value_and_a_damaged_length_are_named_and_the_rest_is_read(tmp_path: Path) -> None:
    reader, said = reader_of(tmp_path)
    whole = written(tmp_path / "whole")
    short = b"\x10\x01\x2a\x07\x0a\x05\x0a\x01l\x12\x00"  # a simple_value of no bytes
    record = struct.pack("<Q", len(short)) + b"\0" * 4 + short + b"\0" * 4
    next(iter((tmp_path / "whole").iterdir())).write_bytes(whole + record + b"\xff" * 40)
    (tmp_path / "cut.tfevents").write_bytes(whole[:20])
    assert [row["loss"] for row in reader.read(is_end=True)] == [0.5] * 3
    assert sorted(text.removeprefix("runs: an event file ") for text in said) == [
        "ends in the middle of a record, which is not read",
        "has records that are no events, which are skipped",
        "is damaged, and is not read any further",
    ]


def test_curves_whose_names_would_be_the_same_are_kept_apart() -> None:
    """Tags that look like a folder and a tag, and two ways to cut one path into both."""
    curves = Curves(Doubts("runs"))
    written = [
        *(("a/loss", "."), ("a:loss", "."), ("loss", "a"), ("loss", "b")),
        *(("y/auc", "x"), ("y/auc", "z"), ("auc", "x/y"), ("auc", "z/y")),
        *(("loss#2", "."), ("lr", "c"), ("lr", "d"), ("d/lr", ".")),
    ]
    for tag, folder in written:
        curves.add(Scalar(1.0, 1, tag, 0.5), folder, "f")
    values = {(tag, folder, "f"): float(number) for number, (tag, folder) in enumerate(written)}
    found = curves.names_of(values)
    assert sorted(found.values()) == sorted(values.values())
    assert [found[tag] for tag in ("a/loss", "a:loss", "loss#2", "d/lr")] == [0.0, 1.0, 8.0, 11.0]
    assert found["a::loss"] == 2.0


def told_of_folders(count: int) -> list[str]:
    said: list[str] = []
    curves = Curves(Doubts("runs", said.append), ["loss"])
    for folder in range(count):
        for step in range(5):
            curves.add(Scalar(float(step), step, "loss", 0.5), f"worker-{folder}", "f")
            curves.names_of({("loss", f"worker-{folder}", "f"): 0.5} if folder else {})
    curves.say()
    return said


def test_a_tag_of_many_folders_costs_what_it_has_values_and_is_one_short_note() -> None:
    names = [f"worker-{folder}/loss" for folder in range(4)]
    assert told_of_folders(200) == [
        f"runs: the tag 'loss' is written in several folders: its metrics are {names} and more"
    ]
    assert exponent(told_of_folders, 50, 200) < LIMIT
