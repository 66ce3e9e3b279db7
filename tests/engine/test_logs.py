"""What an attempt prints, in whatever way and however it ends, is in a log of its own in the storage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import raysweep as rs
from raysweep.runs.folder import SweepFolder
from raysweep.runs.reading.logs import find_log, follow_log, list_logs, read_log
from raysweep.specs.identity import sweep_id
from raysweep.storage.objects.opening import open_store
from raysweep.worker.output.spool import PLACE, spool_root

pytestmark = pytest.mark.ray
Run = Callable[..., rs.SweepOutcome]
HERE = "tests.engine.talkers"
ISOLATIONS = [
    pytest.param("worker", marks=pytest.mark.slow),
    "process",
    pytest.param("actor", marks=pytest.mark.slow),
]
QUICK = {("sigkill", "worker")}


@pytest.fixture
def folder(storage: Path) -> SweepFolder:
    return SweepFolder(open_store(str(storage)), sweep_id("t", "k"))


def text_of(folder: SweepFolder, trial: int, attempt: int | None = None) -> str:
    log = find_log(folder, trial, attempt)
    assert log.is_final
    text = read_log(folder, log)
    assert text is not None
    return text.encode().decode()


def spools_of(folder: SweepFolder) -> list[Path]:
    """What is left on this node of the sweep; others of its name, in other storages, may run here too."""
    places = (spool_root() / folder.sweep_id).glob(f"*/{PLACE}")
    return [place for place in places if folder.store.url in place.read_text()]


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_whatever_a_trial_writes_is_in_its_own_log(isolation: str, run: Run, folder: SweepFolder) -> None:
    run(f"{HERE}:talks", isolation=isolation, num_samples=4)
    assert [log.trial for log in list_logs(folder)] == [0, 1, 2, 3]
    for trial in range(4):
        ways = ("print", "stderr", "logging", "C", "a child", "a descriptor")
        expected = [f"{trial} from {way}" for way in ways] + [f"{trial} without an end of line"]
        assert text_of(folder, trial).splitlines() == expected
    # Nothing is left on the node.
    assert spools_of(folder) == []


ENDS = [
    pytest.param(how, isolation, marks=() if (how, isolation) in QUICK else pytest.mark.slow)
    for how in ("raise", "sigkill", "segfault", "exit", "oom")
    for isolation in ("worker", "process")
]


@pytest.mark.parametrize(("how", "isolation"), ENDS)
def test_the_last_lines_survive(how: str, isolation: str, run: Run, folder: SweepFolder) -> None:
    outcome = run(
        f"{HERE}:ends",
        {"how": how},
        isolation=isolation,
        num_samples=1,
        resources={"cpu": 1, "memory": 2**30},
        failure={"memory_limit_factor": 1.5},
    )
    assert [attempt.end for attempt in outcome.trials[0].attempts] == ["failed", "completed"]
    first = text_of(folder, 0, 1)
    assert first.startswith("attempt 1 begins\nC's last line\nthe last line\n")
    if how == "raise":
        assert first.endswith("ValueError: as asked\n")
        assert "in ends" in first
    else:
        assert first.endswith("[raysweep: the process ended here]\n")
    if how == "segfault":
        assert "Segmentation fault" in first or "SIGSEGV" in first
    assert text_of(folder, 0, 2) == "attempt 2 begins\n"


@pytest.mark.parametrize("isolation", ["worker", pytest.param("process", marks=pytest.mark.slow)])
def test_the_last_failure_of_a_sweep_is_there_when_it_has_ended(
    isolation: str, run: Run, folder: SweepFolder
) -> None:
    """No worker comes after the one that died, and nobody waits for a keeper but the controller."""
    failure = {"max_worker_deaths": 0}
    outcome = run(f"{HERE}:ends", {"how": "sigkill"}, isolation=isolation, num_samples=1, failure=failure)
    assert outcome.trials[0].state == "failed"
    assert text_of(folder, 0).endswith("the last line\n[raysweep: the process ended here]\n")


def test_the_end_of_another_process_of_the_fork_server_is_not_that_of_the_trial(
    run: Run, folder: SweepFolder
) -> None:
    run("tests.engine.helped:outlives_its_helper", isolation="process", num_samples=1)
    assert [log.name for log in list_logs(folder)] == ["logs/00000-1.log"]
    assert text_of(folder, 0) == "before\nafter\n"


@pytest.mark.slow
def test_a_trial_that_prints_nothing_has_no_log(run: Run, folder: SweepFolder) -> None:
    run(f"{HERE}:talks_or_not", num_samples=6)
    assert [log.trial for log in list_logs(folder)] == [1, 3, 5]


@pytest.mark.slow
def test_a_long_log_keeps_its_head_and_its_tail(run: Run, folder: SweepFolder) -> None:
    lines = 60_000
    run(f"{HERE}:floods", {"lines": lines}, num_samples=1)
    text = read_log(folder, find_log(folder, 0))
    assert text is not None
    assert len(text.encode()) <= 2**20 + 100
    assert text.size_bytes == len("the first line\n") + 100 * lines + len("the last line\n")
    head, tail = text.head.decode().splitlines(), text.tail.decode().splitlines()
    assert head[:2] == ["the first line", f"{0:099d}"]
    assert head[1:] == [f"{number:099d}" for number in range(len(head) - 1)]
    assert tail[-1] == "the last line"
    assert tail[:-1] == [f"{number:099d}" for number in range(lines - len(tail) + 1, lines)]


def test_a_running_trial_can_be_followed(run: Run, folder: SweepFolder, tmp_path: Path) -> None:
    go = tmp_path / "go"
    heard: list[bytes] = []

    def look(progress: rs.SweepProgress) -> None:
        if not heard and list_logs(folder):
            log = find_log(folder, 0)
            assert not log.is_final
            following = follow_log(folder, log, lambda: True, poll_s=0.05)
            heard.append(next(following))
            go.touch()
            heard.extend(following)

    run(f"{HERE}:speaks_and_waits", {"go": str(go)}, num_samples=1, on_progress=look)
    assert heard == [b"before\n", b"after\n"]
    assert [log.name for log in list_logs(folder)] == ["logs/00000-1.log"]
    assert not list(folder.store.list(f"{folder.sweep_id}/logs/00000-1.part.log"))


@pytest.mark.slow
def test_without_logs_nothing_is_kept(run: Run, folder: SweepFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYSWEEP_LOG_BYTES", "0")
    run(f"{HERE}:talks", num_samples=1)
    assert list_logs(folder) == []
    assert spools_of(folder) == []
