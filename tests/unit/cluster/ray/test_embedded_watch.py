"""The processes of an embedded Ray: who hears of it when one dies, and what is said."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from raysweep.cluster.ray import embedded_watch
from raysweep.cluster.ray.embedded_watch import EmbeddedWatch
from raysweep.errors import ClusterLostError

Processes = dict[str, subprocess.Popen[bytes]]


@pytest.fixture
def processes() -> Iterator[Processes]:
    command = [sys.executable, "-I", "-S", "-c", "raise SystemExit(int(input()))"]
    started = {name: subprocess.Popen(command, stdin=subprocess.PIPE) for name in ("raylet", "gcs_server")}
    yield started
    for process in started.values():
        process.kill()
        process.communicate()


class Heard:
    """What a listener was told."""

    def __init__(self) -> None:
        self.lost: list[ClusterLostError] = []
        self.is_told = threading.Event()

    def __call__(self, lost: ClusterLostError) -> None:
        self.lost.append(lost)
        self.is_told.set()


@pytest.mark.parametrize(
    ("name", "number", "said"),
    [
        (
            "raylet",
            signal.SIGKILL,
            "its raylet was ended by SIGKILL, as the kernel does where memory runs out",
        ),
        ("gcs_server", signal.SIGTERM, "its control store (gcs_server) was ended by SIGTERM;"),
        ("raylet", None, "its raylet ended with exit code 3;"),
    ],
)
def test_all_who_wait_are_told_once_of_what_died(
    processes: Processes, name: str, number: int | None, said: str
) -> None:
    watch = EmbeddedWatch(processes, look_s=0.01)
    first, second, later, gone = Heard(), Heard(), Heard(), Heard()
    with watch.watching(), watch.telling(first), watch.telling(second):
        with watch.telling(gone):
            assert watch.find_loss() is None
        if number is None:
            processes[name].communicate(b"3\n")
        else:
            processes[name].send_signal(number)
        assert first.is_told.wait(20)
        assert second.is_told.wait(20)
        with watch.telling(later):
            assert later.lost == first.lost, "one that comes afterwards hears of it at once"
    assert len(first.lost) == len(second.lost) == 1
    assert not gone.lost
    assert said in str(first.lost[0])
    assert "run it again with the same key: it starts Ray anew" in str(first.lost[0])
    assert first.lost[0].retryable
    assert str(watch.find_loss()) == str(first.lost[0])


def test_a_loss_is_seen_between_two_looks(processes: Processes) -> None:
    watch = EmbeddedWatch(processes, look_s=600)
    with watch.watching():
        processes["raylet"].kill()
        processes["raylet"].wait()
        assert "raylet" in str(watch.find_loss())


def test_it_is_said_before_ray_ends_a_process_that_hangs(
    processes: Processes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(embedded_watch, "LAST_WORDS_S", 0.05)
    watch, heard, end = EmbeddedWatch(processes, look_s=0.01), Heard(), threading.Event()
    with watch.watching(), watch.telling(heard):
        processes["gcs_server"].kill()
        assert heard.is_told.wait(20)
        end.wait(0.5)
    assert capsys.readouterr().err == f"error: {heard.lost[0]}\n"


def test_nothing_is_said_of_processes_that_end_with_it(
    processes: Processes, capsys: pytest.CaptureFixture[str]
) -> None:
    watch, heard = EmbeddedWatch(processes, look_s=0.01), Heard()
    with watch.telling(heard):
        with watch.watching():
            pass
        processes["raylet"].kill()
        processes["raylet"].wait()
    assert not heard.lost
    assert capsys.readouterr().err == ""
