"""Readers of metrics: what is complete, what is of an earlier attempt, what never appeared."""

from __future__ import annotations

import io
import json
import re
import struct
import time
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.programs.checkpoints import CheckpointWatch, Found, Pairing
from raysweep.programs.doubts import Doubts
from raysweep.programs.readers.jsonl import JsonlReader
from raysweep.programs.readers.lines import Lines
from raysweep.programs.readers.stdout import StdoutReader
from raysweep.programs.readers.tensorboard import TensorBoardReader
from raysweep.programs.readers.trainer_state import TrainerStateReader


def test_a_line_of_jsonl_counts_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"loss": 9}\n')  # of an earlier attempt
    reader = JsonlReader(path)
    assert reader.read() == []
    with open(path, "a") as file:
        file.write('{"loss": 1}\n{"loss"')
        file.flush()
        assert reader.read() == [{"loss": 1}]
        file.write(': 2}\nno json\n\n{"loss": NaN}')
        file.flush()
        assert reader.read() == [{"loss": 2}]
    (last,) = reader.read(is_end=True)
    assert last["loss"] != last["loss"]
    assert reader.missing() == f"1 lines of {path} are no JSON objects"
    path.write_text('{"a": 1}\n')  # written anew, and shorter
    assert reader.read() == [{"a": 1}]


def test_a_file_that_never_appeared_is_named(tmp_path: Path) -> None:
    reader = JsonlReader(tmp_path / "metrics.jsonl")
    assert reader.read(is_end=True) == []
    assert reader.missing() == f"the file {tmp_path / 'metrics.jsonl'} never appeared"


def test_stdout_is_read_in_whatever_pieces_it_comes() -> None:
    reader = StdoutReader(r"loss=(?P<loss>\S+)( acc=(?P<acc>\S+))?")
    for piece in (b"epoch 1 lo", b"ss=0.5\rloss=", b"0.25 acc=1\nnothing\nloss=nan"):
        reader.feed(piece)
    assert reader.read() == [{"loss": 0.5}, {"loss": 0.25, "acc": 1}]
    (last,) = reader.read(is_end=True)
    assert last["loss"] != last["loss"]


@given(st.integers(1, 60), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_a_line_that_was_cut_by_a_kill_is_no_line(
    tmp_path_factory: pytest.TempPathFactory, size: int, end: bytes
) -> None:
    """Killed at any byte: only lines that have their end count, in stdout and in a file."""
    cut = end.join(b"loss=%d.25e+00" % n for n in range(1, 9))[:size]
    reader = StdoutReader(r"loss=(?P<loss>\S+)")
    reader.feed(cut)
    whole = [{"loss": n + 0.25} for n in range(1, cut.count(end[:1]) + 1)]
    assert reader.read(is_end=True, is_whole=False) == whole
    path = tmp_path_factory.mktemp("cut") / "metrics.jsonl"
    lines = JsonlReader(path)
    path.write_bytes(b'{"loss": 1}\n12345678\n{"loss": 2}'[:size])
    assert lines.read(is_end=True, is_whole=False) == [{"loss": 1}] * (size > 11)


class _Counted:
    """The end of a line, which counts the bytes that are searched for it."""

    def __init__(self) -> None:
        self.searched = 0

    def split(self, piece: bytes) -> list[bytes]:
        self.searched += len(piece)
        return piece.split(b"\n")


def test_each_byte_of_a_long_line_is_looked_at_once() -> None:
    ends = _Counted()
    lines = Lines("stdout", cast(re.Pattern[bytes], ends))
    for _ in range(100):
        assert lines.feed(b"x" * 65536) == []
    assert lines.feed(b" loss=1\nloss=2\nlo") == [b"x" * 6553600 + b" loss=1", b"loss=2"]
    assert ends.searched == 6553600 + len(b" loss=1\nloss=2\nlo")
    assert lines.end() == [b"lo"]


def test_megabytes_in_one_line_of_stdout_cost_seconds_at_most() -> None:
    reader = StdoutReader(r"loss=(?P<loss>\S+)")
    began = time.process_time()
    for _ in range(400):
        reader.feed(b"x" * 65536)
    reader.feed(b" loss=1\nloss=2\n")
    assert reader.read() == [{"loss": 1}, {"loss": 2}]
    assert time.process_time() - began < 5.0  # a minute, where each piece was searched with all before it


def test_a_line_beyond_the_bound_is_skipped_and_named_once(caplog: pytest.LogCaptureFixture) -> None:
    lines = Lines("metrics.jsonl", re.compile(b"\n"), max_bytes=8)
    assert lines.feed(b"12345678\n123456789\nabc\n1234") == [b"12345678", b"abc"]
    assert lines.feed(b"56789") == []
    assert lines.feed(b"0\nd\n") == [b"d"]
    assert [record.getMessage() for record in caplog.records] == [
        "metrics.jsonl has a line of more than 8 bytes: such lines are not read"
    ]


def record(payload: bytes) -> bytes:
    return struct.pack("<Q", len(payload)) + b"\0" * 4 + payload + b"\0" * 4


def field(number: int, kind: int, value: bytes) -> bytes:
    head = bytes([number << 3 | kind])
    return head + bytes([len(value)]) + value if kind == 2 else head + value


def scalar(step: int, tag: str, value: float, *, is_tensor: bool = False) -> bytes:
    if is_tensor:
        tensor = field(1, 0, b"\x01") + field(4, 2, struct.pack("<f", value))
        held = field(8, 2, tensor)
    else:
        held = field(2, 5, struct.pack("<f", value))
    summary = field(1, 2, field(1, 2, tag.encode()) + held)
    return record(field(1, 1, struct.pack("<d", 1.0)) + field(2, 0, bytes([step])) + field(5, 2, summary))


def test_the_scalars_of_one_step_of_tensorboard_are_one_record(tmp_path: Path) -> None:
    reader = TensorBoardReader(tmp_path / "runs")
    assert reader.read() == []
    assert "no TensorBoard event file appeared" in reader.missing()
    file = tmp_path / "runs" / "a" / "events.out.tfevents.1"
    file.parent.mkdir(parents=True)
    written = record(field(3, 2, b"brain.Event:2")) + scalar(1, "loss", 0.5)
    written += scalar(1, "acc", 0.25, is_tensor=True)
    second = scalar(2, "loss", 0.125)
    file.write_bytes(written + second[:9])
    assert reader.read() == []  # step 1 may continue
    file.write_bytes(written + second)
    assert reader.read() == [{"step": 1, "loss": 0.5, "acc": 0.25}]
    assert reader.read(is_end=True) == [{"step": 2, "loss": 0.125}]


def test_a_record_of_tensorboard_is_read_once_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "events.out.tfevents.1"
    reader = TensorBoardReader(tmp_path)
    image = record(field(1, 1, b"\0" * 8) * 10_000)
    opened: list[object] = []
    monkeypatch.setattr("builtins.open", lambda *args: opened.append(args) or io.FileIO(*args))  # counts
    for size in range(0, len(image), 1000):
        file.write_bytes(image[:size])
        assert reader.read() == []
    assert len(opened) == 1  # for its head, and not for each piece
    file.write_bytes(image + scalar(1, "loss", 0.5))
    assert reader.read(is_end=True) == [{"step": 1, "loss": 0.5}]


def test_files_of_torch_are_read_as_tensorboard_reads_them(tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard", exc_type=ImportError)
    reader = TensorBoardReader(tmp_path)
    with tensorboard.SummaryWriter(str(tmp_path)) as writer:
        for step in range(300):
            writer.add_scalar("loss", step / 4, step)
    assert reader.read(is_end=True) == [{"step": step, "loss": step / 4} for step in range(300)]


def state(folder: Path, *entries: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": entries}))


def test_the_log_of_a_trainer_goes_on_where_the_restored_checkpoint_ends(tmp_path: Path) -> None:
    one, two = {"loss": 1.0, "step": 5}, {"eval_loss": 0.9, "step": 5}
    three = {"eval_loss": 0.8, "step": 10}
    end = {"train_runtime": 3.0, "step": 10}
    out = tmp_path / "out"
    reader = TrainerStateReader(out, None)
    state(out / "checkpoint-5", one, two)
    assert reader.read() == [{"loss": 1.0, "eval_loss": 0.9, "step": 5}]
    assert reader.read() == []
    state(out / "checkpoint-10", one, two, three)
    state(out, one, two, three, end)
    assert reader.read(is_end=True) == [three]
    resumed = TrainerStateReader(tmp_path / "again", out / "checkpoint-5")
    state(tmp_path / "again" / "checkpoint-10", one, two, three)
    assert resumed.read() == [three]


def test_two_trainings_of_one_folder_are_read_apart_and_said(tmp_path: Path) -> None:
    """As the folds of a cross-validation: the second log is shorter than the first for a while."""
    said: list[str] = []
    reader = TrainerStateReader(tmp_path, None, Doubts("trainer_state", said.append))
    folds = [[{"loss": fold + step / 8, "step": step} for step in range(1, 4)] for fold in range(2)]
    state(tmp_path / "one" / "checkpoint-3", *folds[0])
    state(tmp_path / "one", *folds[0])
    assert reader.read() == folds[0]
    assert not said
    for steps in (1, 2, 3):
        state(tmp_path, *folds[1][:steps])
        assert reader.read() == [folds[1][steps - 1]]
    state(tmp_path / "one", *folds[0], {"loss": float("nan"), "step": 4})
    assert len(reader.read()) == 1
    state(tmp_path / "one", *folds[0], {"loss": float("nan"), "step": 4}, {"loss": 0.5, "step": 5})
    assert reader.read() == [{"loss": 0.5, "step": 5}]
    assert len(said) == 1
    state(tmp_path, *folds[1][:2], {"loss": 0.25, "step": 3})
    assert reader.read() == [{"loss": 0.25, "step": 3}]
    assert said[1:] == [
        "trainer_state: a training went back to an earlier step: later entries replace those after it"
    ]
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "trainer_state.json").write_text('{"log_history": [')
    assert reader.read() == reader.read(is_end=True) == []
    assert said[2:] == ["trainer_state: a trainer_state.json cannot be read, and is skipped"]


def test_a_metric_that_a_trainer_logs_twice_at_one_step_is_two_reports(tmp_path: Path) -> None:
    reader = TrainerStateReader(tmp_path, None)
    rows = [{"loss": 1.0, "step": 5}, {"eval_loss": 0.5, "step": 5}, {"eval_loss": 0.75, "step": 5}]
    state(tmp_path, *rows)
    assert reader.read() == [{"loss": 1.0, "eval_loss": 0.5, "step": 5}, rows[2]]


def test_a_checkpoint_is_complete_when_nothing_has_changed_for_a_second(tmp_path: Path) -> None:
    now = [0.0]
    (tmp_path / "checkpoint-1").mkdir()  # was there before
    watch = CheckpointWatch(tmp_path, "checkpoint-*", "", clock=lambda: now[0])
    folder = tmp_path / "checkpoint-20"
    folder.mkdir()
    for size in range(4):
        (folder / "model").write_text("x" * size)
        assert watch.look() == []
        now[0] += 0.9
    now[0] += 0.2
    assert watch.look() == [Found(folder, 20)]
    assert watch.look() == []
    (tmp_path / "checkpoint-30").mkdir()
    now[0] += 9
    watch.look()
    now[0] += 9
    assert watch.look() == []  # it is empty
    assert watch.look(has_ended_well=True) == [Found(tmp_path / "checkpoint-30", 30)]


def test_a_marker_says_that_a_checkpoint_is_complete(tmp_path: Path) -> None:
    watch = CheckpointWatch(tmp_path, "*", "done")
    (tmp_path / "a").mkdir()
    assert watch.look() == []
    (tmp_path / "a" / "done").touch()
    assert watch.look() == [Found(tmp_path / "a", None)]


SAVE = Found(Path("c"), 4)


@pytest.mark.parametrize(
    ("events", "sent"),
    [
        ([2, 4, SAVE, 6], [(2, ""), (4, "c"), (6, "")]),  # logged, then saved
        ([2, SAVE, 4, 6], [(2, ""), (4, "c"), (6, "")]),  # saved, then logged
        ([3, SAVE, 6], [(3, "c"), (6, "")]),  # saved between two records
        ([2, 4, 6, SAVE], [(2, ""), (4, ""), (6, "c")]),  # found late: the step of 6 goes with it
        ([SAVE, 4], [(4, "c")]),
        ([4, SAVE], [(4, "c")]),
        ([3, SAVE], [(3, "c")]),
    ],
)
def test_a_checkpoint_goes_with_the_record_of_its_step(
    events: list[int | Found], sent: list[tuple[int, str]]
) -> None:
    found: list[tuple[int, str]] = []
    pairing = Pairing(lambda record, path: found.append((record["step"], str(path or ""))))
    for event in events:
        if isinstance(event, Found):
            pairing.found(event)
        else:
            pairing.add({"step": event})
    pairing.flush()
    assert found == sent


def test_without_numbers_a_checkpoint_goes_with_the_record_before_it() -> None:
    found: list[tuple[float, bool]] = []
    pairing = Pairing(lambda record, path: found.append((record["loss"], path is not None)))
    pairing.add({"loss": 1})
    pairing.add({"loss": 2})
    pairing.found(Found(Path("best"), None))
    pairing.add({"loss": 3})
    pairing.flush()
    assert found == [(1, False), (2, True), (3, False)]
