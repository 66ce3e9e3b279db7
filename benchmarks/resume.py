"""resume: the controller is killed half way; how soon the first new trial starts, and what runs again.

`python -m benchmarks.resume (raysweep|tune) (start|resume) FOLDER ADDRESS TRIALS` is the controller.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.contenders import scratch
from benchmarks.measure import Contender, Json, Sample, compare, target
from benchmarks.trainables import logged

TRIAL_S = 0.01
PATIENCE_S = 300.0


def run(rounds: int, *, trials: int = 1000) -> Json:
    """SIGKILL at trial `trials / 2`, then the same again: `run_sweep` with the same key, `Tuner.restore`."""
    import ray

    address = str(ray.get_runtime_context().gcs_address)
    peers = [
        _contender("raysweep", "run_sweep with the same key", address, trials),
        _contender("tune", "reuse_actors=True, Tuner.restore(…).fit()", address, trials),
    ]
    shown, samples = compare(peers, rounds, "resume")
    ours, theirs = (
        {
            key: median(sample.extra[key] for sample in samples[peer.name])
            for key in samples[peer.name][0].extra
        }
        for peer in peers
    )
    return {
        "what": f"SIGKILL of the controller at trial {trials // 2} of {trials} of {TRIAL_S * 1e3:g} ms each",
        "note": (
            "wall: from the start of the new process (Python and Ray's import included) to the start of the"
            " first trial that had not started before; run_again: trials whose code had ended before the kill"
            " and ran once more, those of the journal's last 0.25 s included"
        ),
        **shown,
        "targets": [
            target("finished trials run again", ours["run_again"], at_most=0),
            target(
                "seconds to the first new trial / Tuner.restore's",
                median(s.wall_s for s in samples["raysweep"]) / median(s.wall_s for s in samples["tune"]),
                at_most=1.0,
            ),
            target(
                "run again / Tuner.restore's", ours["run_again"] / max(1.0, theirs["run_again"]), at_most=1.0
            ),
        ],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of the trials' log."""

    number: int
    event: str
    at: float


def _contender(name: str, settings: str, address: str, trials: int) -> Contender:
    def run_once() -> Sample:
        with scratch() as folder:
            return _kill_and_resume(name, folder, address, trials)

    return Contender(name=name, settings=settings, run=run_once)


def _kill_and_resume(name: str, folder: Path, address: str, trials: int) -> Sample:
    log = folder / "log"
    first = _launch(name, "start", folder, address, trials)
    _wait(lambda: _count_ends(log) >= trials // 2, first, f"{name}: {trials // 2} trials")
    first.send_signal(signal.SIGKILL)
    first.wait()
    time.sleep(2.0)  # Ray ends the workers of a driver that is gone; what they were at is not counted
    before = _read(log)
    again_at = time.time()
    second = _launch(name, "resume", folder, address, trials)
    second.wait(PATIENCE_S)
    after = _read(log)[len(before) :]
    if second.returncode or not after:
        raise RuntimeError(f"{name}: the resumed run ended with {second.returncode}, {len(after)} lines")
    started = {line.number for line in before if line.event == "start"}
    ended = {line.number for line in before if line.event == "end"}
    new = [line.at for line in after if line.event == "start" and line.number not in started]
    again = {line.number for line in after if line.event == "start" and line.number in ended}
    everything = ended | {line.number for line in after if line.event == "end"}
    extra = {
        "run_again": float(len(again)),
        "trials_missing": float(trials - len(everything)),
        "first_trial_s": min(line.at for line in after) - again_at,
    }
    return Sample(units=1, wall_s=min(new) - again_at, extra=extra)


def _launch(name: str, mode: str, folder: Path, address: str, trials: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.resume", name, mode, str(folder), address, str(trials)]
    return subprocess.Popen(command, env=os.environ | {"RAY_AIR_NEW_OUTPUT": "0"})


def _wait(is_done: Callable[[], bool], process: subprocess.Popen[bytes], what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not is_done():
        if process.poll() is not None or time.monotonic() > until:
            process.kill()
            raise RuntimeError(f"{what} did not come: exit code {process.poll()}")
        time.sleep(0.01)


def _count_ends(log: Path) -> int:
    return log.read_bytes().count(b" end ") if log.exists() else 0


def _read(log: Path) -> list[Line]:
    words = (line.split() for line in log.read_text().splitlines())
    return [Line(number=int(number), event=event, at=float(at)) for number, event, at in words]


# -- the controllers that are killed ------------------------------------------------------------------


def main() -> None:
    """Be the controller."""
    name, mode, folder, address, trials = sys.argv[1:]
    if name == "raysweep":
        _run_raysweep(Path(folder), address, int(trials))
    else:
        _run_tune(Path(folder), address, int(trials), is_restored=mode == "resume")


def _run_raysweep(folder: Path, address: str, trials: int) -> None:
    import raysweep as rs

    spec = rs.SweepSpec(
        name="resume",
        trainable="benchmarks.trainables:logged",
        param_space={"number": {"grid_search": list(range(trials))}, **_constants(folder)},
        metric="loss",
        mode="min",
        storage_path=str(folder / "sweeps"),
    )
    rs.run_sweep(spec, key="resume", address=address)


def _run_tune(folder: Path, address: str, trials: int, *, is_restored: bool) -> None:
    import ray
    from ray import tune

    ray.init(address=address, log_to_driver=False)
    if is_restored:
        tuner = tune.Tuner.restore(str(folder / "tune" / "resume"), trainable=logged)
    else:
        tuner = tune.Tuner(
            logged,
            param_space={"number": tune.grid_search(list(range(trials))), **_constants(folder)},
            tune_config=tune.TuneConfig(metric="loss", mode="min", reuse_actors=True),
            run_config=tune.RunConfig(name="resume", storage_path=str(folder / "tune"), verbose=0),
        )
    tuner.fit()


def _constants(folder: Path) -> dict[str, Any]:
    return {"log": str(folder / "log"), "seconds": TRIAL_S}


if __name__ == "__main__":
    main()
