"""What a process that runs attempts writes lies in the spool, whatever ends the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from raysweep.messages import Job
from raysweep.worker.output.captured import Output
from raysweep.worker.output.spool import DONE, OUT, OWNER, become_owner, entries, is_alive, make_spool
from raysweep.worker.runner import run_attempt
from raysweep.worker.shell import WorkerShell
from raysweep.worker.sweep_info import SweepPlace


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def talk(spool: Path, what: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.unit.worker.talking", str(spool), what]
    # With it, neither Python nor C would ever hold a line back.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def found(spool: Path, kind: str) -> dict[tuple[str, int], str]:
    return {
        (entry.trial, entry.attempt): entry.path.read_text() for entry in entries(spool) if entry.kind == kind
    }


def test_each_attempt_has_what_it_wrote_in_order_and_nobody_elses(spool: Path) -> None:
    ran = talk(spool, "every_way")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "before\nbetween\nbetween\n"
    assert found(spool, DONE) == {
        ("00003", 2): "3 print\n3 C\n3 stderr\n3 child\n3 no end",
        ("00004", 2): "4 print\n4 C\n4 stderr\n4 child\n4 no end\n4 last words\n",
    }


def test_attempts_that_write_nothing_leave_nothing(spool: Path) -> None:
    assert talk(spool, "silent").returncode == 0
    assert found(spool, DONE) == {("01000", 1): "at last\n"}
    assert len(list(spool.iterdir())) == 2  # with the file that says who owned it


def test_between_silent_attempts_nothing_is_turned_and_an_idle_process_writes_where_it_did(
    spool: Path,
) -> None:
    ran = talk(spool, "one_after_the_other")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "idle\nclosed\n"
    assert found(spool, DONE) == {("00002", 1): "2 said\n", ("00004", 1): "4 said\n"}


def test_an_attempt_that_turns_its_output_elsewhere_does_not_take_that_of_the_next(spool: Path) -> None:
    ran = talk(spool, "turns_away")
    assert ran.returncode == 0, ran.stderr
    assert found(spool, DONE) == {
        ("00002", 1): "stdout\nstderr\n",
        ("00004", 1): "stdout\nstderr\n",
        ("00005", 1): "before it closed 1\n",
        ("00006", 1): "stdout\n",
    }


def test_a_process_that_is_done_leaves_only_what_was_written(spool: Path) -> None:
    assert talk(spool, "done").returncode == 0
    assert found(spool, DONE) == {("00001", 1): "said\n"}
    assert [entry.kind for entry in entries(spool)] == [DONE]


def test_children_of_a_prepared_process_have_a_file_each_and_leave_what_they_wrote(spool: Path) -> None:
    ran = talk(spool, "forks")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "goes where it went\n"
    assert found(spool, DONE) == {("00000", 1): "0 says\n", ("00005", 1): "5 says\n"}
    # Of those that could not say that they ended, as of a process that has died.
    assert found(spool, OUT) == {("00002", 1): "2 killed\n", ("00003", 1): "3 exits\n", ("00006", 1): ""}
    left = [entry for entry in entries(spool) if entry.kind in (OUT, OWNER)]
    assert len(left) == 6
    assert not any(is_alive(spool, entry.owner) for entry in left)


def test_a_prepared_process_that_ends_leaves_what_its_child_writes(spool: Path) -> None:
    assert talk(spool, "closes_early").returncode == 0
    assert found(spool, OUT) == {("00004", 1): "said\n"}


def test_where_a_prepared_process_could_not_make_the_file_its_children_do(spool: Path) -> None:
    spool.touch()
    ran = talk(spool, "forks")
    assert ran.returncode == 0, ran.stderr
    assert "not kept any more" in ran.stderr
    assert ran.stdout.splitlines()[-1] == "goes where it went"


def test_a_process_whose_log_could_not_be_named_leaves_it(spool: Path) -> None:
    ran = talk(spool, "cannot_name")
    assert "not kept any more" in ran.stderr
    assert found(spool, OUT) == {("00001", 1): "said\n"}


def test_what_a_killed_process_wrote_last_is_there(spool: Path) -> None:
    assert talk(spool, "killed").returncode == -9
    assert found(spool, OUT) == {("00005", 1): "the last line\nand C's\n"}
    (entry,) = (entry for entry in entries(spool) if entry.kind == OUT)
    assert not is_alive(spool, entry.owner)


def test_a_child_that_lives_on_does_not_keep_the_dead_alive(spool: Path) -> None:
    command = [sys.executable, "-m", "tests.unit.worker.talking", str(spool), "leaves_a_child"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.wait(timeout=60) == -9
        (entry,) = (entry for entry in entries(spool) if entry.kind == OUT)
        assert not is_alive(spool, entry.owner)


def test_an_owner_that_lives_is_alive(spool: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from raysweep.worker.output.spool import *;"
        "folder = Path(sys.argv[1]); make_spool(folder);"
        "print(become_owner(folder)[0], flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(spool)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        owner = process.stdout.readline().strip()
        assert is_alive(spool, owner)
        assert [entry.kind for entry in entries(spool)] == [OWNER]
        process.communicate(timeout=60)
    assert not is_alive(spool, owner)
    assert not is_alive(spool, "nobody")


def test_a_folder_that_is_taken_away_costs_the_trial_only_its_log(spool: Path) -> None:
    ran = talk(spool, "breaks")
    assert ran.returncode == 0
    assert ran.stdout == "goes where it went\n"
    assert "not kept any more" in ran.stderr


def test_the_spool_is_for_its_user_alone(spool: Path) -> None:
    make_spool(spool)
    assert spool.stat().st_mode & 0o077 == 0
    owner, _ = become_owner(spool)
    assert {entry.owner for entry in entries(spool)} == {owner}
    (spool / "keeper.lock").touch()
    (spool / "00001-x.o.done").touch()
    (spool / f"{owner}.other").touch()
    assert [entry.kind for entry in entries(spool)] == [OWNER]
    (spool / f"{owner}.out").touch()
    assert sorted((entry.kind, entry.trial) for entry in entries(spool)) == [(OUT, ""), (OWNER, "")]


class Heard(Output):
    """Hears what an attempt's log ends with."""

    def end(self, last_words: str = "") -> None:
        self.last_words = last_words


class Deaf:
    """A link that nobody listens at."""

    def listen(self, take: object, on_gone: object) -> None: ...
    def send(self, message: object, *, waits: bool = False) -> None: ...
    def send_now(self, message: object) -> None: ...
    def send_row(self, *row: object) -> None: ...
    def close(self, timeout_s: float | None = None) -> None: ...


def fails(config: dict[str, Any]) -> None:
    raise ValueError("as asked")


def returns(config: dict[str, Any]) -> None:
    pass


@pytest.mark.parametrize(("trainable", "said"), [(fails, "ValueError: as asked\n"), (returns, "")])
def test_a_log_ends_with_the_traceback_of_a_failure(trainable: Any, said: str) -> None:
    shell = WorkerShell(Deaf())
    job = Job(trial=3, attempt=1, config={}, seed=1)
    shell.take([job])
    assert shell.next_job() is job
    output = Heard()
    place = SweepPlace(sweep_id="s-1", storage_path="", resources={})
    run_attempt(trainable, job, place, shell, output)
    assert output.last_words.endswith(said)
    assert bool(said) == bool(output.last_words)
    assert "in fails" in output.last_words or not said
