"""Trainables that do what their process, or their errors, are not made for."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import raysweep as rs

Config = dict[str, Any]
THREADS = 4
REPORTS = 300
"""Of each thread."""


class SpeechlessError(Exception):
    """Says nothing when it is asked."""

    def __str__(self) -> str:
        raise SystemExit(9)


class TwoArgumentsError(Exception):
    """Can be pickled, and not unpickled, as many can: it hands on another argument than it takes."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(f"{code}: {what}")


class LockedError(Exception):
    """Cannot be pickled."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.lock = threading.Lock()


def speechless(config: Config) -> None:
    raise SpeechlessError


def closes_descriptors(config: Config) -> None:
    """As a daemon does, that of its link included; then it waits for an answer."""
    os.closerange(3, 4096)
    rs.report({"loss": 1.0}, wait=True)


def forks(config: Config) -> dict[str, float]:
    """A process that it forks reports, then goes its way out of the trainable; its exit code is returned."""
    pid = os.fork()
    if not pid:
        try:
            rs.report({"loss": -1.0})
        except rs.RaysweepError as error:
            Path(config["said"]).write_text(str(error))
        if config["leaves"] == "exit":
            sys.exit(3)
        if config["leaves"] == "raise":
            raise ValueError("of the fork")
        return {"loss": -2.0}
    _, status = os.waitpid(pid, 0)
    rs.report({"loss": config["x"], "code": os.waitstatus_to_exitcode(status)})
    return {"loss": config["x"], "code": os.waitstatus_to_exitcode(status)}


def closes_stdout(config: Config) -> dict[str, float]:
    """The first trial closes what all print to."""
    print("hear me", rs.get_context().number)
    if rs.get_context().number == 0:
        sys.stdout.close()
        sys.stderr.close()
    return {"loss": config["x"]}


def reports_from_threads(config: Config) -> None:
    """Each thread reports under names of its own."""

    def work(me: int) -> None:
        for count in range(REPORTS):
            rs.report({"loss": float(count), f"of_{me}": count})

    threads = [threading.Thread(target=work, args=(me,)) for me in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def enters_twice(config: Config) -> dict[str, str | float]:
    """A checkpoint that is opened twice, one after the other and one in the other."""
    with rs.new_checkpoint() as folder:
        (folder / "f").write_text("kept")
        rs.report({"loss": 1.0}, checkpoint=folder)
    found = rs.get_checkpoint()
    assert found is not None
    with found as first:
        text = (first / "f").read_text()
    with found as first, found as second:
        assert first != second
        text += (first / "f").read_text() + (second / "f").read_text()
    assert not first.exists()
    assert not second.exists()
    return {"loss": 1.0, "read": text}


# -- trainings --------------------------------------------------------------------------------------------


def returns_anything(config: Config) -> dict[Any, Any]:
    import numpy as np

    rs.report({"loss": 1.0})
    return {
        "accuracy": np.float32(0.5),
        "per_class": np.arange(3),
        "ratio": float("nan"),
        "model": threading.Lock(),
        7: 8,
    }


def returns_a_lock(config: Config) -> Any:
    rs.report({"loss": 1.0})
    return threading.Lock()


def reports_anything(config: Config) -> None:
    import numpy as np
    import torch

    rs.report({"loss": torch.tensor(1.5), "rows": np.arange(2), "odd": [float("nan")], np.str_("name"): 3})


def raises_two_arguments(config: Config) -> None:
    rs.report({"loss": 1.0})
    raise TwoArgumentsError(5, "the disk is on fire")


def raises_locked(config: Config) -> None:
    rs.report({"loss": 1.0})
    raise LockedError("the disk is on fire")


def raises_speechless(config: Config) -> None:
    rs.report({"loss": 1.0})
    raise SpeechlessError


def reports_an_object(config: Config) -> None:
    rs.report({"loss": 1.0, "model": object()})


def leaves_all_behind(config: Config) -> None:
    """The first trial leaves a thread, a timer, a folder that is gone and a variable; the next is plain."""
    marker = Path(config["marker"])
    if rs.get_context().number:
        marker.touch()
        home, variable = os.getcwd(), os.environ.get("OF_THE_FIRST")
        time.sleep(0.6)
        rs.report({"loss": 1.0, "from": 1, "pid": os.getpid(), "home": home, "variable": variable})
        return

    def late() -> None:
        while not marker.exists():
            time.sleep(0.02)
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(3):
                try:
                    rs.report({"loss": -1.0, "from": 0}, checkpoint=folder)
                except rs.TrialStopped:
                    continue

    rs.report({"loss": 2.0, "from": 0, "pid": os.getpid(), "home": os.getcwd()})
    threading.Thread(target=late, daemon=True).start()
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    os.environ["OF_THE_FIRST"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)


class AcceleratorError(RuntimeError):
    """As PyTorch raises it."""


def breaks_the_gpu(config: Config) -> None:
    """The first trial does."""
    Path(config["pids"], str(rs.get_context().number)).write_text(str(os.getpid()))
    if rs.get_context().number == 0:
        raise AcceleratorError("CUDA error: device-side assert triggered")
    rs.report({"loss": 1.0})
