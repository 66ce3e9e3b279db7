"""Plays one storm and says what it violated."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import raysweep as rs
from raysweep.runs.reading.reader import SweepReader
from raysweep.specs import RunRequest
from tests.storms import oracle
from tests.storms.controller import KEY, Run
from tests.storms.processes import (
    Process,
    adopt_orphans,
    command_of,
    descendants,
    kill_all,
    wait_alone,
)
from tests.storms.specs import Storm, draw_storm

LIMIT_S: Final = float(os.environ.get("STORM_LIMIT_S", "40"))
"""A run in which no trial says anything for so long hangs."""
ALONE_S: Final = 4.0
"""How long after a run its processes may still be there."""
LAST_LOOK_S: Final = 0.5
"""What is deleted so shortly before the outcome is written, the sweep need not see."""


@dataclass(slots=True)
class Result:
    """How a storm went."""

    number: int
    told: str
    ended: str = ""
    violations: list[str] = field(default_factory=list)
    wall_s: float = 0.0
    cpu_s: float = 0.0
    refused: str = ""


def play(seed: int, number: int, folder: Path, *, evaluates: bool = False) -> Result:
    """Play it in this process, which must be one of its own: it adopts what the storm leaves behind.

    `evaluates`: see `draw_storm`.
    """
    adopt_orphans()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    begun = time.monotonic()
    storm = draw_storm(seed, number, folder, evaluates=evaluates)
    result = Result(number, storm.told())
    try:
        rs.SweepSpec(**storm.spec)
    except rs.SpecError as error:
        result.refused = str(error)[:300]
        return result
    player = Player(storm, folder, Random(f"{seed}:{number}:play"), result)
    try:
        player.play()
    finally:
        kill_all(list(descendants(os.getpid())))
        result.wall_s = time.monotonic() - begun
        times = os.times()
        result.cpu_s = times.user + times.system + times.children_user + times.children_system
    return result


class Player:
    """Runs a storm's controllers one after the other, kills some, and looks at what they leave."""

    def __init__(self, storm: Storm, folder: Path, rng: Random, result: Result) -> None:
        self._storm, self._folder, self._rng = storm, folder, rng
        self._found, self._result = result.violations, result
        self._begun = self._deleted_at = 0.0
        self._snapshots: list[tuple[float, Mapping[int, rs.TrialOutcome]]] = []
        self._sweep_id = RunRequest.of(rs.SweepSpec(**storm.spec), KEY).run.id

    def play(self) -> None:
        """All of it."""
        self._begun = time.monotonic()
        for index, (delay_s, takes_others) in enumerate(self._storm.kills):
            if not self._run_and_kill(f"killed{index}", delay_s, takes_others):
                break
        outcome = self._run("last")
        log = self._log()
        self._found += oracle.check_traces(self._storm, log)
        if outcome is None or self._is_deleted_too_late():
            return
        with self._reading():
            self._found += oracle.check_outcome(self._storm, outcome, log, self._elapsed_s())
            for at, before in self._snapshots:
                self._found += oracle.check_kept(before, at, outcome, log)
        with self._reading():
            self._found += oracle.check_storage(self._storm, outcome)
        self._run_again(outcome, len(log.lines["start"]))
        if self._storm.follow_up and not self._found:
            self._follow_up(outcome)

    def _log(self) -> oracle.Log:
        return oracle.Log.read(Path(self._storm.plan["log"]))

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._begun

    def _is_deleted_too_late(self) -> bool:
        """Whether the storm deleted something after the sweep had looked for the last time."""
        if not self._storm.deletion:
            return False
        path = Path(self._storm.spec["storage_path"], self._sweep_id, "outcome.json")
        return not path.exists() or self._deleted_at > path.stat().st_mtime - LAST_LOOK_S

    def _reading(self) -> Any:
        """What cannot be read is a violation, and no end of the storm."""
        return _Reading(self._found)

    def _run_and_kill(self, tag: str, delay_s: float, takes_others: bool) -> bool:
        """Whether the controller was killed before its end."""
        process = self._plan_run(tag).begin()
        self._await_start(process)
        if takes_others:
            self._kill_worker()
        if process.wait(delay_s) is not None:
            return False
        process.kill()
        process.wait(10.0)
        killed_at = time.monotonic()
        with suppress(rs.RaysweepError):
            trials = SweepReader(self._storm.spec["storage_path"], self._sweep_id).trials()
            self._snapshots.append((killed_at, {trial.number: trial for trial in trials}))
        time.sleep(self._rng.choice([0.0, 0.3]))
        return True

    def _plan_run(self, tag: str, **changes: Any) -> Run:
        storm = self._storm
        return Run(
            spec=changes.pop("spec", storm.spec),
            folder=self._folder,
            tag=tag,
            cpus=storm.cpus,
            happenings=storm.happenings if tag == "last" else (),
            jump=storm.jump if tag == "last" else None,
            on_progress=storm.on_progress,
            asks=changes,
        )

    def _await_start(self, process: Process, limit_s: float = 20.0) -> None:
        end = time.monotonic() + limit_s
        size = self._log_size()
        while self._log_size() == size and time.monotonic() < end and process.wait(0.01) is None:
            pass

    def _log_size(self) -> int:
        path = Path(self._storm.plan["log"])
        return path.stat().st_size if path.exists() else 0

    def _kill_worker(self) -> None:
        """The process of a trial that runs, or a fork server, or whatever descends from this one."""
        lines = self._log().lines
        pids = [entry["pid"] for entry in (*lines["start"], *lines["judge"])]
        living = set(descendants(os.getpid()))
        running = [pid for pid in pids if pid in living and pid != self._controller]
        if running:
            with suppress(ProcessLookupError):
                os.kill(self._rng.choice(running), signal.SIGKILL)

    _controller = 0

    def _run(self, tag: str, **changes: Any) -> rs.SweepOutcome | None:
        """Run to the end; None where it raised what it may raise."""
        run = self._plan_run(tag, **changes)
        process = run.begin()
        self._controller = process.pid
        if tag == "last":
            self._disturb(process)
        if not self._await_end(process):
            self._found.append(f"{tag}: hangs")
            process.kill(signal.SIGUSR2)  # its threads' stacks go to what it printed
            process.wait(0.5)
            process.kill()
            process.wait(10.0)
            return None
        self._check_processes(tag)
        return self._read_end(run, process)

    def _await_end(self, process: Process) -> bool:
        """Whether it comes: as long as trials say something, a slow machine is no hang."""
        size = -1
        while process.wait(LIMIT_S) is None:
            before, size = size, self._log_size()
            if size == before:
                return False
        return True

    def _disturb(self, process: Process) -> None:
        storm = self._storm
        if not storm.worker_kills and not storm.deletion:
            return
        self._await_start(process)
        begun = time.monotonic()
        line = [(at, self._kill_worker) for at in storm.worker_kills]
        if storm.deletion:
            line.append((storm.deleted_after_s, self._delete))
        for at, act in sorted(line, key=lambda each: each[0]):
            if process.wait(max(0.0, begun + at - time.monotonic())) is not None:
                return
            act()

    def _delete(self) -> None:
        self._deleted_at = time.time()
        folder = Path(self._storm.spec["storage_path"], self._sweep_id)
        match self._storm.deletion:
            case "folder":
                shutil.rmtree(folder, ignore_errors=True)
            case "first segments":
                for path in sorted((folder / "journal").glob("*"))[:3]:
                    path.unlink(missing_ok=True)
            case "sweep.json":
                (folder / "sweep.json").unlink(missing_ok=True)
            case "blobs":  # the sweep deletes folders meanwhile
                for parent, _, names in os.walk(folder / "checkpoints"):
                    for path in (Path(parent, name) for name in names):
                        if self._rng.random() < 0.7:
                            path.unlink(missing_ok=True)
            case part:
                shutil.rmtree(folder / part, ignore_errors=True)

    def _check_processes(self, tag: str) -> None:
        left = wait_alone(ALONE_S)
        if left:
            self._found.append(f"{tag}: {len(left)} processes are left: {command_of(left[0])}")
        kill_all(left)

    def _read_end(self, run: Run, process: Process) -> rs.SweepOutcome | None:
        if not run.end_path.exists():
            self._found.append(f"{run.tag}: the controller's process ended with {process.exit_code}")
            return None
        end = json.loads(run.end_path.read_text())
        self._result.ended = (end["error"] + " " + end["text"]).strip()
        if end["threads"]:
            self._found.append(f"{run.tag}: threads are left: {', '.join(end['threads'])}")
        if end["error"]:
            self._found += self._judge_error(run.tag, end)
            return None
        return rs.StoredSweep.from_json(run.outcome_path.read_text())

    def _judge_error(self, tag: str, end: dict[str, Any]) -> Iterator[str]:
        storm = self._storm
        if storm.has_bad_hook or (storm.deletion and "RaysweepError" in end["kinds"]):
            return
        may_refuse = "SpecError" in end["kinds"] and (tag == "follow-up" or storm.plan["acts"])
        if not may_refuse:
            yield f"{tag}: raised {end['error']}: {end['text']}"

    def _run_again(self, outcome: rs.SweepOutcome, starts: int) -> None:
        if self._storm.deletion:
            return
        again = self._run("again")
        if again is not None:
            self._found += oracle.check_same(outcome, again)
        if len(self._log().lines["start"]) != starts:
            self._found.append("called again, it ran trials")

    def _follow_up(self, outcome: rs.SweepOutcome) -> None:
        """Continue: with more samples, with the failed ones, or further."""
        changes: dict[str, Any] = dict(self._storm.follow_up)
        more = changes.pop("more", 0)
        if more:
            changes["spec"] = self._storm.spec | {"num_samples": self._storm.spec["num_samples"] + more}
        asked_at = time.monotonic()
        after = self._run("follow-up", **changes)
        if after is None:
            return
        with self._reading():
            self._found += oracle.check_outcome(
                self._storm, after, self._log(), self._elapsed_s(), is_extension="extend" in changes
            )
            self._found += oracle.check_storage(self._storm, after)
        kept = {} if "extend" in changes else {t.number: t for t in outcome.trials if t.state != "failed"}
        kept = {number: trial for number, trial in kept.items() if trial.state in oracle.FINAL}
        self._found += oracle.check_kept(kept, asked_at, after, self._log())


class _Reading:
    def __init__(self, found: list[str]) -> None:
        self._found = found

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if isinstance(error, rs.RaysweepError):
            self._found.append(f"{type(error).__name__}: {error}"[:300])
            return True
        return False
