"""What must hold of a storm: read from its log, its outcomes, its storage and its processes."""

from __future__ import annotations

import json
import math
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import raysweep as rs
from raysweep.runs.folder import SweepFolder
from raysweep.storage.checkpoints.store import restore_uri
from raysweep.storage.objects.opening import open_store
from raysweep.verify import verify_sweep
from tests.storms.specs import Storm
from tests.storms.zoo import judged, loss_of, saved

FINAL: Final = ("completed", "stopped", "failed")
CUT: Final = ("budget", "deadline")
KEPT: Final = ("cwd", "environ", "itimer", "handlers", "logging", "numpy")
"""Of what a trial finds in its process, what another trial before it must not have changed."""
Row = dict[str, Any]


@dataclass(slots=True)
class Log:
    """What the trials of a storm have said, by kind."""

    lines: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def read(cls, path: Path) -> Log:
        """The log so far."""
        log = cls()
        for line in path.read_text().splitlines() if path.exists() else ():
            entry = json.loads(line)
            log.lines[entry["what"]].append(entry)
        return log


def check_outcome(
    storm: Storm, outcome: rs.SweepOutcome, log: Log, elapsed_s: float, *, is_extension: bool = False
) -> Iterator[str]:
    """What is wrong with how a sweep ended; `elapsed_s`: how long it took in all, by no wall clock.

    Of an extension, what a limit left out is steps, and no trial.
    """
    rows = list(outcome.reports())
    limit_s = storm.spec["stop"].get("time_budget_s")
    # No trial begins that would not report in time, and one ends at its last checkpoint in time. So
    # the sweep may end before its limit by up to two such times and their margin.
    early_s = 0.2 + 3.2 * _longest_first_report(outcome, rows)
    if outcome.status == "budget" and "budget" not in storm.spec["stop"] and elapsed_s < limit_s - early_s:
        yield f"ended by its time budget of {limit_s} s after {elapsed_s:.1f} s"
    yield from _check_status(outcome, is_extension)
    yield from check_rows(storm, outcome, rows)
    if storm.evaluates:
        yield from check_evaluations(storm, outcome, rows, log)
    yield from _check_acknowledged(log, rows)
    yield from _check_scores(storm, outcome, rows)
    yield from _check_best(storm, outcome)


def check_traces(storm: Storm, log: Log) -> Iterator[str]:
    """What one trial has left to another."""
    for entry in log.lines["foreign"]:
        yield f"trial {entry['trial']} got the checkpoint of trial {entry['owner']}"
    for entry in log.lines["torn"]:
        yield f"trial {entry['trial']} got a checkpoint that is not what was saved"
    seen = {(entry["fact"], entry["was"], entry["now"]): entry for entry in log.lines["carried"]}
    for (fact, was, now), entry in seen.items():
        if fact in KEPT and storm.isolation != "inline":
            yield f"trial {entry['trial']} found {fact} changed: {was} -> {now}"


def _longest_first_report(outcome: rs.SweepOutcome, rows: list[dict[str, Any]]) -> float:
    """Seconds from an attempt's start to its first report."""
    first: dict[tuple[int, int], float] = {}
    for row in rows:
        first.setdefault((row["number"], row["attempt"]), row["at"])
    return max(
        (
            first[trial.number, each.attempt] - each.started_at
            for trial in outcome.trials
            for each in trial.attempts
            if (trial.number, each.attempt) in first
        ),
        default=0.0,
    )


def _check_status(outcome: rs.SweepOutcome, is_extension: bool) -> Iterator[str]:
    states = {trial.state for trial in outcome.trials}
    counts = {name: n for name, n in outcome.counts.items() if n and name in FINAL}
    found: dict[str, int] = defaultdict(int)
    for trial in outcome.trials:
        found[trial.state] += 1
    if any(found[name] != n for name, n in counts.items()):
        yield f"counts {counts} of trials {dict(found)}"
    is_whole = states <= set(FINAL) and len(outcome.trials) == outcome.num_trials
    if outcome.status in CUT and is_whole and not is_extension:
        yield f"{outcome.status}, though every trial has come to its own end: {outcome.why}"
    if outcome.status == "completed" and not is_whole:
        yield f"completed with {dict(found)} of {outcome.num_trials}"


def check_rows(storm: Storm, outcome: rs.SweepOutcome, rows: Sequence[Row]) -> Iterator[str]:
    """Each trial's reports are what its config, seed and steps give, in order."""
    places: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in rows:
        number = row["number"]
        if not row["overrun"]:
            places[number, row["attempt"]].append(row["iteration"])
        if "of" in row and row["of"] != number:
            yield f"a report of trial {row['of']} counts for trial {number} (overrun: {row['overrun']})"
        elif row.get("forked"):
            yield f"a forked process reported for trial {number}"
        elif not row.get("odd") and "step" in row:
            yield from _check_row(storm, outcome, row)
    for (number, attempt), found in places.items():
        if found != list(range(found[0], found[0] + len(found))):
            yield f"trial {number}, attempt {attempt}: iterations {found[:20]}"


def check_evaluations(storm: Storm, outcome: rs.SweepOutcome, rows: Sequence[Row], log: Log) -> Iterator[str]:
    """Each report whose checkpoint was to be evaluated has that evaluation, and no other, and once."""
    plan, asked = storm.plan, storm.spec["evaluate"]
    given = {(entry["trial"], entry["of"], entry["step"]) for entry in log.lines["judged"]}
    for row in rows:
        number, step = row["number"], row.get("step")
        where = f"trial {number}, attempt {row['attempt']}, report {row['iteration']}"
        if row.get("judged") == -1:
            continue  # an act's checkpoint, which has no state
        if "judged" in row:
            expected = judged(plan["seed"], row.get("of", number), step)
            if not row.get("odd") and row["judged"] != expected:
                yield f"{where}: judged {row['judged']}, expected {expected}"
            if not row.get("odd") and (number, row.get("of"), step) not in given:
                yield f"{where}: an evaluation that was not made"
        elif row.get("saved") and asked["every"] == 1 and not row["overrun"] and not storm.deletion:
            note = f"trial {number}: the evaluation after report {row['iteration']} "
            if not any(each.startswith(note) for each in outcome.notes):
                yield f"{where}: the evaluation is missing, and no note says why"
    done = [(row["number"], row["attempt"], row["iteration"]) for row in rows]
    if len(done) != len(set(done)):
        yield "a report is there twice"


def _check_row(storm: Storm, outcome: rs.SweepOutcome, row: Row) -> Iterator[str]:
    expected = loss_of(row["x"], storm.plan["seed"], row["number"], row["step"])
    if storm.evaluates and "loss" not in row:
        return  # the evaluation that gives it is missing, see `check_evaluations`
    if row["loss"] != expected:
        yield f"trial {row['number']}, step {row['step']}: loss {row['loss']}, expected {expected}"
    if not storm.exploits and row["x"] != outcome.trials[row["number"]].config["x"]:
        yield f"trial {row['number']} reported for another config"


def _check_acknowledged(log: Log, rows: Sequence[Row]) -> Iterator[str]:
    kept = {(row["number"], row["attempt"], row.get("step")) for row in rows}
    for entry in log.lines["acknowledged"]:
        if (entry["trial"], entry["attempt"], entry["step"]) not in kept:
            yield f"an acknowledged report is lost: {entry}"


def _check_scores(storm: Storm, outcome: rs.SweepOutcome, rows: Sequence[Row]) -> Iterator[str]:
    if storm.exploits or storm.spec.get("score") == "best":
        return
    last: dict[int, float] = {}
    for row in sorted(rows, key=lambda row: (row["attempt"], row["iteration"])):
        value = row.get(outcome.metric)
        if not row["overrun"] and _is_finite(value):
            last[row["number"]] = float(value)
    for trial in outcome.trials:
        if trial.score is not None and trial.score != last.get(trial.number):
            yield f"trial {trial.number}: score {trial.score}, last report {last.get(trial.number)}"
        if trial.score is None and trial.number in last and trial.state in ("completed", "stopped"):
            yield f"trial {trial.number} is {trial.state} and has no score, but reports"


def _is_finite(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)


def _check_best(storm: Storm, outcome: rs.SweepOutcome) -> Iterator[str]:
    if storm.spec.get("constraints") or storm.spec.get("repeat") or outcome.others:
        return
    sign = 1 if outcome.mode == "min" else -1
    scored = [t for t in outcome.trials if t.state != "failed" and t.score is not None]
    best = min(scored, key=lambda t: (sign * (t.score or 0.0), t.number), default=None)
    found = outcome.found_best
    if (found and found.number) != (best and best.number):
        yield f"best is {found and found.number}, expected {best and best.number}"


def check_storage(storm: Storm, outcome: rs.SweepOutcome) -> Iterator[str]:
    """`verify` finds nothing damaged, and the checkpoint of each trial restores to what it saved.

    Where the storm has deleted a part of the storage, this holds of the journal and the best checkpoint.
    """
    folder = SweepFolder(open_store(storm.spec["storage_path"]), outcome.sweep_id)
    best = outcome.found_best
    trials = outcome.trials if not storm.deletion else (best,) if best is not None else ()
    damage = verify_sweep(folder).damage
    if storm.deletion:
        damage = tuple(each for each in damage if not each.checkpoint)
    if damage:
        yield f"verify: {'; '.join(f'{each.object} {each.problem}' for each in damage)}"[:400]
    for trial in trials:
        if trial.checkpoint_uri:
            yield from _check_restore(storm, trial)


def _check_restore(storm: Storm, trial: rs.TrialOutcome) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as name:
        try:
            restore_uri(str(trial.checkpoint_uri), Path(name, "restored"))
        except rs.RaysweepError as error:
            yield f"the checkpoint of trial {trial.number} does not restore: {error}"
            return
        path = Path(name, "restored", "state.json")
        if path.exists():
            state = json.loads(path.read_text())
            if state["trial"] != trial.number and not storm.exploits:
                yield f"the checkpoint of trial {trial.number} is of trial {state['trial']}"
            if state != saved(storm.plan, state["trial"], state["step"]):
                yield f"the checkpoint of trial {trial.number} is not what was saved"


def check_kept(
    before: Mapping[int, rs.TrialOutcome], at: float, outcome: rs.SweepOutcome, log: Log
) -> Iterator[str]:
    """Trials that had finished when a controller was killed are as they were, and have not run again."""
    for number, trial in before.items():
        if trial.state not in FINAL:
            continue
        now = outcome.trials[number]
        was, is_now = ((t.state, t.score, len(t.attempts)) for t in (trial, now))
        if was != is_now:
            yield f"finished trial {number} changed: {was} -> {is_now}"
        if any(entry["trial"] == number and entry["at"] > at + 0.5 for entry in log.lines["start"]):
            yield f"finished trial {number} ran again"


def check_same(first: rs.SweepOutcome, again: rs.SweepOutcome) -> Iterator[str]:
    """The same call gives the same outcome."""
    was, now = first.model_dump(), again.model_dump()
    differing = [name for name in was if name != "notes" and was[name] != now[name]]
    if differing:
        yield f"called again, {', '.join(differing)} differ"
