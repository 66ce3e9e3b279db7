"""A process that captures its output as a worker does: `python -m tests.unit.worker.talking FOLDER WHAT`."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

from raysweep.messages import Job
from raysweep.worker.output.captured import CapturedOutput


def job(trial: int, attempt: int = 1) -> Job:
    return Job(trial=trial, attempt=attempt, config={}, seed=0)


def every_way(output: CapturedOutput) -> None:
    """Two attempts, and something between them."""
    print("before")
    for trial in (3, 4):
        output.begin(job(trial, attempt=2))
        print(f"{trial} print")
        ctypes.CDLL(None).puts(f"{trial} C".encode())
        print(f"{trial} stderr", file=sys.stderr)
        subprocess.run(["echo", f"{trial} child"], check=True)
        print(f"{trial} no end", end="")
        output.end(f"\n{trial} last words\n" if trial == 4 else "")
        print("between", flush=True)


def silent(output: CapturedOutput) -> None:
    """A thousand attempts that say nothing, and one that does."""
    for trial in range(1000):
        output.begin(job(trial))
        output.end()
    output.begin(job(1000))
    print("at last")
    output.end()


def one_after_the_other(output: CapturedOutput) -> None:
    """Silent attempts in a row: nothing is turned between them, until the process has nothing to do."""
    output.begin(job(1))
    during = os.stat(1).st_ino
    output.end()
    assert os.stat(1).st_ino == os.stat(2).st_ino == during
    output.begin(job(2))
    output.rest()  # of no effect while one runs
    print("2 said")
    output.end()
    output.begin(job(3))
    output.end()
    output.rest()
    print("idle", flush=True)
    output.begin(job(4))
    print("4 said")
    output.end()
    output.close()
    print("closed", flush=True)


def turns_away(output: CapturedOutput) -> None:
    """Attempts that turn a descriptor elsewhere, or close it, and leave it so."""
    elsewhere = os.open(os.devnull, os.O_WRONLY)
    for trial, descriptor in ((1, 1), (3, 2)):
        output.begin(job(trial))
        os.dup2(elsewhere, descriptor)
        output.end()
        output.begin(job(trial + 1))
        os.write(1, b"stdout\n")
        os.write(2, b"stderr\n")
        output.end()
    output.begin(job(5))
    os.write(2, b"before it closed 1\n")
    os.close(1)
    output.end()
    output.begin(job(6))
    os.write(1, b"stdout\n")
    output.end()


def done(output: CapturedOutput) -> None:
    """Prepared as a process that forks: one attempt that says something, one that does not."""
    output.prepare()
    output.begin(job(1))
    print("said")
    output.end()
    output.begin(job(2))
    output.end()
    output.close()


def forks(output: CapturedOutput) -> None:
    """Prepared, with a child for each attempt: each ends in its own way."""
    output.prepare()
    for trial, how in enumerate(("says", "silent", "killed", "exits", "silent", "says", "killed silently")):
        if os.fork() == 0:
            output.begin(job(trial))
            if "silent" not in how:
                os.write(1, f"{trial} {how}\n".encode())
            if how == "exits":
                os._exit(0)
            if how.startswith("killed"):
                os.kill(os.getpid(), signal.SIGKILL)
            output.end()
            output.close()
            os._exit(0)
        os.wait()
        output.settle()
    print("goes where it went", flush=True)
    output.close()


def closes_early(output: CapturedOutput) -> None:
    """Prepared, and closed while a child's attempt is under way."""
    output.prepare()
    ready, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        output.begin(job(4))
        print("said")
        os.write(theirs, b"!")
        signal.pause()
    os.read(ready, 1)
    output.close()
    os.kill(child, signal.SIGKILL)


def cannot_name(output: CapturedOutput) -> None:
    """What was said cannot get its name at the end of the attempt."""
    output.begin(job(1))
    print("said")
    (owner,) = Path(sys.argv[1]).glob("*.owner")
    (owner.parent / f"00001-1.{owner.stem}.done" / "full").mkdir(parents=True)
    output.end()
    output.close()


def killed(output: CapturedOutput) -> None:
    """Killed in the middle."""
    output.begin(job(5))
    print("the last line")
    ctypes.CDLL(None).puts(b"and C's")
    os.kill(os.getpid(), signal.SIGKILL)


def leaves_a_child(output: CapturedOutput) -> None:
    """Killed, while a child of it lives on until its standard input closes."""
    output.begin(job(5))
    print("the last line")
    if os.fork():
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stdin.read()
    os._exit(0)


def waits(output: CapturedOutput) -> None:
    """Says something, waits for standard input to close, says something more."""
    output.begin(job(6))
    print("before")
    os.write(int(sys.argv[3]), b"!")
    sys.stdin.read()
    print("after")
    output.end()


def breaks(output: CapturedOutput) -> None:
    """Its folder is taken away."""
    output.begin(job(7))
    Path(sys.argv[1]).rename(f"{sys.argv[1]}-away")
    print("lost")
    output.end()
    output.begin(job(8))
    print("goes where it went", flush=True)
    output.end()


if __name__ == "__main__":
    globals()[sys.argv[2]](CapturedOutput(Path(sys.argv[1])))
