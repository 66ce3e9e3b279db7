"""million: a million trials on real workers in one run, whose controller is killed half way.

`python -m benchmarks.million FOLDER TRIALS` is the controller.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.contenders import scratch
from benchmarks.measure import Json, significant, target
from benchmarks.processes import family

TRIALS: Final = 1_000_000
MIB: Final = 1 << 20
PATIENCE_S: Final = 3_600.0
LOOK_S: Final = 0.2


def run(rounds: int, *, trials: int = TRIALS) -> Json:
    """One run, whatever `rounds` is: no-op trials, default settings, an embedded Ray of 2 CPUs."""
    with scratch() as folder:
        first = _launch(folder, trials)
        before = _follow(first, folder, trials // 2)
        _kill(first)
        second = _launch(folder, trials)
        after = _follow(second, folder, before.ended + 1)
        if second.wait(PATIENCE_S):
            raise RuntimeError(f"the resumed run ended with {second.returncode}")
        shown = json.loads((folder / "outcome").read_text())
        stored = [file for file in folder.joinpath("sweeps").rglob("*") if file.is_file()]
        sizes = {file: file.stat().st_size for file in stored}
    if (shown["status"], shown["completed"]) != ("completed", trials):
        raise RuntimeError(f"{shown} of {trials} trials")
    journal = sum(size for file, size in sizes.items() if "journal" in file.parts)
    outcome = sum(size for file, size in sizes.items() if file.name.startswith("outcome"))
    return {
        "what": f"{trials} trials that return one number, 2 slots, SIGKILL of the controller half way",
        "load": round(os.getloadavg()[0], 1),
        "until_the_kill": {"trials": before.ended, "s": significant(before.took_s)},
        "resume": {
            "first_new_trial_s": significant(after.took_s),
            "whole_s": significant(shown["at"] - second.began_at),
        },
        "controller": {"peak_mib": round(shown["peak_bytes"] / MIB), "cpu_s": significant(shown["cpu_s"])},
        "stored_mib": {
            "all": significant(sum(sizes.values()) / MIB),
            "journal": significant(journal / MIB),
            "outcome": significant(outcome / MIB),
        },
        "targets": [target("s from a new process to the first new trial", after.took_s, at_most=30.0)],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """How many trials had ended, and how long that took from the start of the process."""

    ended: int
    took_s: float


class _Controller(subprocess.Popen[bytes]):
    began_at = 0.0


def _launch(folder: Path, trials: int) -> _Controller:
    (folder / "ended").unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.million", str(folder), str(trials)]
    began_at = time.time()
    process = _Controller(command, start_new_session=True)
    process.began_at = began_at
    return process


def _follow(process: _Controller, folder: Path, ended: int) -> _Seen:
    """Wait until so many trials have ended."""
    until = time.time() + PATIENCE_S
    while True:
        found = _ended(folder)
        if found >= ended:
            return _Seen(ended=found, took_s=time.time() - process.began_at)
        if process.poll() is not None or time.time() > until:
            process.kill()
            raise RuntimeError(f"{found} of {ended} trials ended; exit code {process.poll()}")
        time.sleep(LOOK_S)


def _kill(process: _Controller) -> None:
    """The controller, and the Ray that it has started, at once."""
    for pid in sorted(family(process.pid)):
        os.kill(pid, signal.SIGKILL)
    process.wait()


def _ended(folder: Path) -> int:
    try:
        return int((folder / "ended").read_text() or 0)
    except FileNotFoundError:
        return 0


# -- the controller that is killed --------------------------------------------------------------------


def main() -> None:
    """Be the controller."""
    import resource

    import raysweep as rs

    folder, trials = Path(sys.argv[1]), int(sys.argv[2])

    def tell(progress: Any) -> None:
        (folder / "ended").write_text(str(progress.counts.get("completed", 0)))

    spec = rs.SweepSpec(
        name="million",
        trainable="benchmarks.trainables:noop",
        param_space={"x": {"uniform": [0.0, 1.0]}},
        num_samples=trials,
        search="random",
        metric="loss",
        mode="min",
        storage_path=str(folder / "sweeps"),
    )
    outcome = rs.run_sweep(spec, key="million", num_cpus=2, on_progress=tell)
    used = resource.getrusage(resource.RUSAGE_SELF)
    shown = {
        "status": outcome.status,
        "completed": outcome.counts["completed"],
        "at": time.time(),
        "peak_bytes": used.ru_maxrss * 1024,
        "cpu_s": used.ru_utime + used.ru_stime,
    }
    (folder / "outcome").write_text(json.dumps(shown))


if __name__ == "__main__":
    main()
