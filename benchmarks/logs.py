"""logs, logs-c: trials that print 1 MB each and do nothing else, with their logs kept and without.

Without, they print into the log files that Ray has its workers write, and nobody stores these.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks import contenders
from benchmarks.measure import Contender, Json, Sample, compare, ratio, target

VARIABLE = "RAYSWEEP_LOG_BYTES"
SPACE = {"x": {"uniform": [0.0, 1.0]}, "lines": 10_000}
LIMIT = 1.05


def run(rounds: int, *, trials: int = 1000, isolation: str = "worker") -> Json:
    """Lines by `print`."""
    return _run(rounds, "talk", trials, "print", isolation)


def run_c(rounds: int, *, trials: int = 1000, isolation: str = "worker") -> Json:
    """Lines written to descriptor 1, as C code and child processes do."""
    return _run(rounds, "write", trials, "the descriptor", isolation)


def run_forked(rounds: int, *, trials: int = 1000) -> Json:
    """Lines by `print`, of trials in processes of their own."""
    return run(rounds, trials=trials, isolation="process")


def kept(trainable: str, trials: int, isolation: str) -> Contender:
    """As it comes."""
    return contenders.raysweep(f"benchmarks.trainables:{trainable}", SPACE, trials, isolation=isolation)


def bare(trainable: str, trials: int, isolation: str) -> Contender:
    """The same without logs."""
    peer = kept(trainable, trials, isolation)

    def run() -> Sample:
        with _without_logs():
            return peer.run()

    return Contender(name="without_logs", settings=f"{peer.settings}, {VARIABLE}=0", run=run)


def _run(rounds: int, trainable: str, trials: int, how: str, isolation: str) -> Json:
    peers = [kept(trainable, trials, isolation), bare(trainable, trials, isolation)]
    shown, samples = compare(peers, rounds, "trial")
    ours, theirs = samples["raysweep"], samples["without_logs"]
    targets = [
        target(f"times as long as without logs, {figure}", 1 / ratio(ours, theirs, figure), at_most=LIMIT)
        for figure in ("warm", "wall")
    ]
    what = f"{trials} trials ({isolation}) that write 10,000 lines of 100 bytes by {how}, 2 slots"
    return {"what": what, **shown, "targets": targets}


@contextmanager
def _without_logs() -> Iterator[None]:
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
