"""The process beside the controller: it dies, hangs, is started again; notes say what was given up."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from raysweep.delivery.beside import Beside
from raysweep.hooks.spec import CallbackSpec
from tests.unit.delivery.callbacks import Options, Writes
from tests.unit.delivery.journals import GoldenSweep, ids_of, writes


@pytest.fixture
def sweep(tmp_path: Path) -> GoldenSweep:
    made = GoldenSweep("chaos-98", tmp_path / "store")
    made.write()
    return made


def wait_for(condition: Callable[[], bool], within_s: float = 60.0) -> None:
    until = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_all_is_delivered_by_the_end(sweep: GoldenSweep, tmp_path: Path) -> None:
    beside = Beside(sweep.folder, (writes(tmp_path / "out"), writes(tmp_path / "two")))
    beside.start()
    assert beside.finish() == ()
    for name in ("out", "two"):
        assert (tmp_path / name).read_text().split() == ids_of(sweep)


def test_an_object_is_sent_to_the_process(sweep: GoldenSweep, tmp_path: Path) -> None:
    beside = Beside(sweep.folder, (CallbackSpec.of(Writes(Options(path=str(tmp_path / "out")), None)),))
    beside.start()
    assert beside.finish() == ()
    assert (tmp_path / "out").read_text().split() == ids_of(sweep)


def test_a_process_that_dies_is_started_again_and_goes_on(sweep: GoldenSweep, tmp_path: Path) -> None:
    beside = Beside(sweep.folder, (writes(tmp_path / "out", does="die", at=20),))
    beside.start()
    wait_for(lambda: (tmp_path / "out.done").exists())
    wait_for(lambda: set((tmp_path / "out").read_text().split()) == set(ids_of(sweep)))
    assert beside.finish() == ()


@pytest.mark.parametrize(
    ("does", "ended"), [("die", "was ended by SIGKILL"), ("leave", "ended with exit code 7")]
)
def test_the_exit_code_or_signal_of_a_process_that_dies_is_said(
    sweep: GoldenSweep, tmp_path: Path, caplog: pytest.LogCaptureFixture, does: str, ended: str
) -> None:
    beside = Beside(sweep.folder, (writes(tmp_path / "out", does=does, at=3),))
    beside.start()
    wait_for(lambda: f"the process that calls them {ended}; it is started again" in caplog.text)
    assert beside.finish() == ()


def test_a_callback_that_hangs_is_given_up_and_the_note_says_so(sweep: GoldenSweep, tmp_path: Path) -> None:
    calls = (writes(tmp_path / "out", does="hang", at=3), writes(tmp_path / "two"))
    beside = Beside(sweep.folder, calls, idle_s=2.0, most_s=20.0)
    beside.start()
    (note,) = beside.finish()
    assert note.startswith("callback Writes: ")
    assert (
        f"events were not delivered in time; `raysweep deliver {sweep.folder.sweep_id}` delivers them" in note
    )
    assert (tmp_path / "two").read_text().split() == ids_of(sweep)


def test_without_its_controller_the_process_ends_and_the_next_one_continues(tmp_path: Path) -> None:
    sweep = GoldenSweep("chaos-98", tmp_path / "store")
    sweep.write(30)
    beside = Beside(sweep.folder, (writes(tmp_path / "out"),))
    beside.start()
    wait_for(lambda: (tmp_path / "out").exists())
    process = beside._process
    assert process is not None
    assert process.stdin is not None
    beside._is_leaving.set()
    process.stdin.close()  # as when the controller is killed
    process.wait(30)
    sweep.write()
    again = Beside(sweep.folder, (writes(tmp_path / "out"),))
    again.start()
    assert again.finish() == ()
    assert sorted(set((tmp_path / "out").read_text().split())) == ids_of(sweep)


@pytest.mark.slow
def test_close_ends_a_process_that_hangs(sweep: GoldenSweep, tmp_path: Path) -> None:
    beside = Beside(sweep.folder, (writes(tmp_path / "out", does="hang", at=1),))
    beside.start()
    process = beside._process
    assert process is not None
    wait_for(lambda: (tmp_path / "out.done").exists())
    beside.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, signal.SIGTERM)


def test_what_takes_longer_can_be_waited_for_in_pieces(sweep: GoldenSweep, tmp_path: Path) -> None:
    beside = Beside(sweep.folder, (writes(tmp_path / "out", does="down", at=3),), idle_s=20.0, most_s=40.0)
    beside.start()
    answers = [beside.finish(0.0)]
    while answers[-1] is None:
        answers.append(beside.finish(0.2))
    assert answers[0] is None
    assert answers[-1] == ()
    assert (tmp_path / "out").read_text().split() == ids_of(sweep)
    assert "Writes" in beside.note_until_done
    assert f"`raysweep deliver {sweep.folder.sweep_id}`" in beside.note_until_done


def test_a_process_that_dies_at_the_end_is_not_waited_for(sweep: GoldenSweep, tmp_path: Path) -> None:
    beside = Beside(sweep.folder, (writes(tmp_path / "out", does="hang", at=3),), idle_s=60.0, most_s=60.0)
    beside.start()
    wait_for(lambda: (tmp_path / "out.done").exists())
    assert beside.finish(0.0) is None
    process = beside._process
    assert process is not None
    process.kill()
    (note,) = beside.finish(30.0) or ()
    assert "not all events were delivered: the process that calls them was ended by SIGKILL" in note
