"""Checkpoint folders of programs: when one is complete, when it is looked at again, and what is doubted."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raysweep.programs import checkpoints
from raysweep.programs.checkpoints import CheckpointWatch, Files, Found, Pairing
from raysweep.programs.open_files import is_written
from raysweep.programs.plan import Plan
from raysweep.programs.runner import Program
from raysweep.testing import run_trial
from raysweep.testing.trials import AttemptRun
from raysweep.worker.checkpoints import captures


class Watched:
    """A watch of folders whose clock the test sets; `says` is what it doubts."""

    def __init__(self, folder: Path, marker: str = "", is_open: Callable[[Path], bool] = lambda path: False):
        self.folder = folder
        self.now = 0.0
        self.says: list[str] = []
        self.looks = 0
        self.watch = CheckpointWatch(
            folder, "*", marker, is_open=is_open, say=self.says.append, clock=lambda: self.now
        )

    def write(self, name: str, text: str = "x") -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        os.utime(path, ns=(time.time_ns(), time.time_ns()))

    def after(self, seconds: float) -> list[str]:
        """The names that are found in so many seconds."""
        found: list[Found] = []
        for _ in range(round(seconds * 4)):
            self.now += 0.25
            found += self.watch.look()
        return [each.path.name + "+" * each.grew for each in found]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_a_folder_that_gets_more_files_is_found_again_and_the_next_one_is_waited_for(
    watched: Watched,
) -> None:
    watched.write("ck-1/model")
    assert watched.after(1.5) == ["ck-1"]
    watched.write("ck-1/optimizer")
    assert watched.after(0.5) == []
    assert watched.after(1.0) == ["ck-1+"]
    (said,) = watched.says
    assert "got more files later: name the file that is written last as program.checkpoints.marker" in said
    watched.write("ck-2/model")
    assert watched.after(1.5) == []  # the program pauses for so long
    watched.write("ck-2/optimizer")
    assert watched.after(5) == ["ck-2"]


def test_a_folder_that_is_written_anew_is_found_each_time(watched: Watched) -> None:
    """Also through other files that replace the old ones, and without waiting longer."""
    for epoch in range(3):
        watched.write("last/model", str(epoch))
        watched.write("last/model.tmp", "y")
        assert watched.after(0.25) == []
        (watched.folder / "last/model.tmp").rename(watched.folder / "last/model")
        assert watched.after(1.5) == ["last"]
    assert watched.says == []


def test_a_marker_that_is_written_anew_says_that_a_folder_is_complete_again(tmp_path: Path) -> None:
    watched = Watched(tmp_path, marker="done")
    for epoch in range(2):
        watched.write("last/model", str(epoch))
        assert watched.after(2) == []
        watched.write("last/done")
        assert watched.after(0.25) == ["last"]
    (tmp_path / "last/done").unlink()
    assert watched.after(2) == []


def test_a_folder_of_an_earlier_attempt_counts_once_it_is_written_to(tmp_path: Path) -> None:
    Watched(tmp_path).write("last/model", "old")
    watched = Watched(tmp_path)
    assert watched.after(3) == []
    watched.write("last/model", "new")
    assert watched.after(1.5) == ["last"]


def test_files_that_a_checkpoint_gets_after_a_newer_one_do_not_bring_it_back(watched: Watched) -> None:
    watched.write("ck-1/model")
    assert watched.after(2) == ["ck-1"]
    watched.write("ck-2/model")
    assert watched.after(2) == ["ck-2"]
    watched.write("ck-1/evaluation.json")
    assert watched.after(9) == []
    assert watched.watch.look(has_ended_well=True) == []


def test_a_folder_with_an_open_file_is_not_complete(tmp_path: Path) -> None:
    watched = Watched(tmp_path, is_open=lambda path: is_written(path, [os.getpid()]))
    watched.write("ck-1/config")
    with open(tmp_path / "ck-1/model", "wb"), open(tmp_path / "ck-1/config"):
        assert watched.after(5) == []
    assert watched.after(0.25) == ["ck-1"]
    with open(tmp_path / "ck-1/log", "w"):  # one that stays open does not hold it for ever
        assert watched.after(29) == []
        assert watched.after(4) == ["ck-1+"]


def test_a_folder_that_changes_when_the_program_fails_is_not_stored_and_is_named(watched: Watched) -> None:
    watched.write("ck-1/model")
    assert watched.after(2) == ["ck-1"]
    watched.write("ck-2/model")
    watched.after(0.5)
    assert watched.watch.look(has_ended_well=False) == []
    (said,) = watched.says
    assert said.startswith("a folder that was changing when the program failed is not stored")
    assert [each.path.name for each in watched.watch.look(has_ended_well=True)] == ["ck-2"]


def test_a_stored_folder_is_looked_at_ever_more_rarely(tmp_path: Path) -> None:
    """The cost of a run grows with its checkpoints, and not with their number times its length."""
    looked = [0]

    class Counting(CheckpointWatch):
        def _files(self, path: Path) -> Files:
            looked[0] += 1
            return super()._files(path)

    watched = Watched(tmp_path)
    watched.watch = Counting(tmp_path, "*", "", clock=lambda: watched.now)
    watched.write("ck-1/model")
    watched.after(1000)
    first, looked[0] = looked[0], 0
    watched.after(3000)
    assert first < 200
    assert looked[0] < 40  # ln(4) / 0.05 = 28


@pytest.mark.parametrize(("is_well", "stored"), [(True, ["c"]), (False, [])])
def test_a_checkpoint_after_the_last_record_is_stored_after_exit_code_0(
    is_well: bool, stored: list[str]
) -> None:
    again: list[str] = []
    pairing = Pairing(lambda record, path: None, lambda path: again.append(str(path)))
    pairing.add({"step": 4})
    pairing.found(Found(Path("b"), 4))
    pairing.found(Found(Path("c"), 6))
    pairing.flush(has_ended_well=is_well)
    assert again == stored


def test_one_that_grew_goes_with_the_record_that_was_sent_with_it() -> None:
    events: list[object] = []
    pairing = Pairing(
        lambda record, path: events.append(record["step"]), lambda path: events.append(str(path))
    )
    pairing.add({"step": 4})
    pairing.found(Found(Path("c"), 4))
    pairing.found(Found(Path("c"), 4, grew=True))
    pairing.add({"step": 6})
    pairing.flush()
    assert events == [4, "c", 6]


BEGIN = """
import os, sys, time
out, restored = os.environ["RAYSWEEP_OUTPUT_DIR"], os.environ.get("RAYSWEEP_CHECKPOINT")
if restored:
    print(f"step=9 loss=1 files={','.join(sorted(os.listdir(restored)))}", flush=True)
    sys.exit()
os.mkdir(out + "/ck-1")
open(out + "/ck-1/model", "w").close()
print("step=1 loss=3", flush=True)
time.sleep(0.9)
"""
END = """
time.sleep(0.9)
os.kill(os.getpid(), 9)
"""


def run(path: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> list[AttemptRun]:
    monkeypatch.setattr(checkpoints, "SETTLED_S", 0.2)
    path.write_text(BEGIN + script + END)
    plan = Plan(
        command=(sys.executable, str(path)), metrics="stdout", folder="ck-*",
        source=r"step=(?P<step>\d+) loss=(?P<loss>\S+)( files=(?P<files>\S+))?",
    )  # fmt: skip
    return list(run_trial(Program(plan), {}, metric="loss", max_failures=1))


def test_a_checkpoint_that_was_stored_half_written_is_stored_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = run(tmp_path / "train.py", 'open(out + "/ck-1/optimizer", "w").close()', monkeypatch)
    assert len(first.checkpoints) == 2
    assert "program.checkpoints (ck-*): a folder that was stored" in first.notes[0]
    assert second.resumed_from == 1
    assert [row["files"] for row in second.reports] == ["model,optimizer"]


@pytest.mark.parametrize("new", ["ck-1-final", "ck-1"], ids=["renamed", "replaced"])
def test_a_folder_that_is_moved_while_it_is_copied_is_stored_as_it_is_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: str
) -> None:
    copy, moved = captures.copy_file, []

    def move_first(source: Path, *rest: Any) -> None:  # at a moment that no program can be made to hit
        folder = source.parent
        if folder.name == "ck-1" and not moved:
            moved.append(folder.rename(folder.with_name("away")))
            (folder.with_name(new)).mkdir()
            (folder.with_name(new) / "other").touch()
        copy(source, *rest)

    monkeypatch.setattr(captures, "copy_file", move_first)
    first, second = run(tmp_path / "train.py", 'print("step=2 loss=2", flush=True)', monkeypatch)
    assert moved
    assert first.error is not None
    assert first.error["message"].endswith("ended with SIGKILL")
    assert [row["files"] for row in second.reports] == ["other"]
