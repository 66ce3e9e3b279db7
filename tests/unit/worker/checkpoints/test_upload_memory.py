"""What a checkpoint of 1 GB costs the worker that makes it, beside the time."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

_UPLOAD = """
import os, sys
from pathlib import Path
import raysweep as rs
from raysweep.testing import run_trial

MB = 10**6
top = Path(sys.argv[1])
source = top / "in"
source.mkdir()

def held_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MB

def most_mb():
    # Not `ru_maxrss`: a process begins with that of the one that started it, here pytest's.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024 / MB

def train(config):
    rs.report({"loss": 1.0}, checkpoint=config["small"], wait=True)  # all is imported
    baseline = held_mb()
    rs.report({"loss": 1.0}, checkpoint=config["large"])
    with rs.get_checkpoint() as found:
        assert (found / "body").stat().st_size == 1000 * MB
    print(round(most_mb() - baseline))

small = top / "small"
small.mkdir()
(small / "a").write_text("a")
with open(source / "body", "wb") as file:
    for _ in range(100):
        file.write(os.urandom(10 * MB))
(attempt,) = run_trial(train, {"small": str(small), "large": str(source)})
assert attempt.error is None, attempt.error
assert attempt.checkpoints == (0, 1)
"""


@pytest.mark.slow
def test_a_worker_holds_less_than_200_mb_more_while_1_gb_is_stored_and_restored(
    tmp_path: Path,
) -> None:
    script = tmp_path / "upload.py"
    script.write_text(textwrap.dedent(_UPLOAD))
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 200
