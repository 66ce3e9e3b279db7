"""Trainables of the storms: deterministic reports, checkpoints that prove whose they are, and misbehaviour.

A trial's reports are a function of its config, the storm's seed, its number and the step; the oracle computes
them again. What a trial does beside that is one *act*, drawn from the seed by its number (`act_of`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import pathlib
import resource
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

import raysweep as rs
from tests.storms import acts

Config = dict[str, Any]
_first: dict[int, dict[str, Any]] = {}
"""By pid, what the first attempt of this process found (see `surroundings`)."""


def draw(*parts: Any) -> int:
    """A number below 2**48 from these."""
    return int.from_bytes(hashlib.sha256(json.dumps(parts).encode()).digest()[:6], "big")


def loss_of(x: float, seed: int, number: int, step: int) -> float:
    """What a trial reports at a step."""
    return ((x - 0.3) ** 2 + 0.01) * (1.0 + 1.0 / step) + 1e-6 * (draw(seed, number, step) % 1000)


def act_of(plan: Mapping[str, Any], number: int) -> str:
    """The misbehaviour of a trial; empty: it behaves. In pairs, every second trial does."""
    chosen = plan["acts"]
    if not chosen or (plan["pairs"] and number % 2):
        return ""
    if not plan["pairs"] and draw(plan["seed"], "has", number) % 1000 >= 1000 * plan["share"]:
        return ""
    return str(chosen[draw(plan["seed"], "which", number) % len(chosen)])


def saved(plan: Mapping[str, Any], number: int, step: int) -> dict[str, Any]:
    """What the checkpoint of a trial's step holds."""
    return {
        "trial": number,
        "step": step,
        "pad": f"{draw(plan['seed'], 'pad', number, step):x}" * plan["pad"],
    }


def train(config: Config) -> Any:
    """One trial."""
    plan, context = config["plan"], rs.get_context()
    number, act = context.number, act_of(config["plan"], context.number)
    say(plan, "start", trial=number, attempt=context.attempt, rank=context.rank, act=act)
    _look_for_traces(plan, number)
    begin = _restore(plan, number)
    at = plan["acts_at"] or 1 + draw(plan["seed"], "at", number) % plan["steps"]
    for step in range(begin + 1, plan["steps"] + 1):
        loss = loss_of(config["x"], plan["seed"], number, step)
        row: Config = {"loss": loss, "acc": 1.0 / (1.0 + loss), "step": step, "of": number, "x": config["x"]}
        row["cost"] = 1.0 + number % 5
        if act and step == at:
            row = acts.perform(act, acts.Scene(plan, number, step, row))
        time.sleep(plan["sleep_s"])
        _report(plan, context, step, row)
    time.sleep(plan["tail_s"])
    say(plan, "end", trial=number, attempt=context.attempt)
    return acts.conclude(act, plan, number)


def _report(plan: Config, context: Any, step: int, row: Config) -> None:
    waits = bool(plan["waits"]) and draw(plan["seed"], "waits", context.number, step) % 3 == 0
    is_due = plan["every"] and (step % plan["every"] == 0 or rs.should_checkpoint()) and context.rank == 0
    if is_due and "judge_s" in plan and not row.get("odd"):
        row = {**row, "saved": 1}
        if plan["judges_metric"]:
            row.pop("loss", None)
    if is_due and plan["new_folder"]:
        with rs.new_checkpoint() as folder:
            write(folder, saved(plan, context.number, step))
            rs.report(row, checkpoint=folder, wait=waits)
    elif is_due:
        with tempfile.TemporaryDirectory() as name:
            write(pathlib.Path(name), saved(plan, context.number, step))
            rs.report(row, checkpoint=name, wait=waits)
    else:
        rs.report(row, wait=waits)
    if waits and context.rank == 0 and row.get("step") == step:
        say(plan, "acknowledged", trial=context.number, attempt=context.attempt, step=step)


def judged(seed: int, number: int, step: int) -> int:
    """What the evaluation of a trial's checkpoint gives."""
    return draw(seed, "judged", number, step) % 1_000_000


def judge(checkpoint: pathlib.Path, config: Config, iteration: int) -> Config:
    """Evaluates a checkpoint. Its process may die, or it raises, or is slow: once, or each time."""
    plan, context = config["plan"], rs.get_context()
    path = pathlib.Path(checkpoint, "state.json")
    if not path.exists():
        return {"judged": -1}  # an act's, without any
    state = json.loads(path.read_text())
    number, step, seed = int(state["trial"]), int(state["step"]), plan["seed"]
    facts = {"of": number, "step": step, "attempt": context.attempt}
    say(plan, "judge", trial=context.number, iteration=iteration, **facts)
    if state != saved(plan, number, step):
        say(plan, "torn", trial=context.number, step=step)
    time.sleep(plan["judge_s"] * (5 if draw(seed, "slow", number, step) % 10 == 0 else 1))
    if draw(seed, "fails", number, step) % 1000 < 1000 * plan["judge_fails"]:
        how = draw(seed, "how", number, step) % 4
        if how == 3 or acts.is_first(plan, f"judge.{number}.{step}"):
            if how == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError(f"no verdict on trial {number}, step {step}")
    found: Config = {"judged": judged(seed, number, step)}
    if plan["judges_metric"]:
        found["loss"] = loss_of(config["x"], seed, number, step)
    say(plan, "judged", trial=context.number, iteration=iteration, **facts)
    return found


def write(folder: pathlib.Path, content: Config) -> None:
    """A checkpoint's only file."""
    (folder / "state.json").write_text(json.dumps(content))


def _restore(plan: Config, number: int) -> int:
    checkpoint = rs.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint as folder:
        path = pathlib.Path(folder, "state.json")
        if not path.exists():
            return 0  # an act's, without any
        state = json.loads(path.read_text())
    if not plan["exploits"] and state["trial"] != number:
        say(plan, "foreign", trial=number, owner=state["trial"])
    if state != saved(plan, state["trial"], state["step"]):
        say(plan, "torn", trial=number, step=state["step"])
    return int(state["step"])


# -- what one trial leaves to the next -------------------------------------------------------------------


def surroundings() -> dict[str, Any]:
    """What a trial finds in its process, and must find as the first trial did."""
    umask = os.umask(0)
    os.umask(umask)
    try:
        cwd = os.getcwd()
    except OSError:
        cwd = "gone"
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGUSR1, signal.SIGCHLD)
    return {
        "cwd": cwd,
        "environ": [*sorted(name for name in os.environ if name.startswith("STORM_")), _digest()],
        "itimer": signal.getitimer(signal.ITIMER_REAL)[0] > 0,
        "handlers": [str(signal.getsignal(each)) for each in signals],
        "logging": len(logging.getLogger().handlers),
        "numpy": numpy.geterr() if (numpy := sys.modules.get("numpy")) is not None else None,
        "umask": umask,
        "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "socket timeout": socket.getdefaulttimeout(),
        "stdout": sys.stdout is None or sys.stdout.closed,
        "sleep": getattr(time.sleep, "__module__", "") != "time",
    }


def _digest() -> str:
    kept = {name: os.environ.get(name) for name in ("PATH", "HOME", "USER", "LANG")}
    return hashlib.sha256(json.dumps(kept).encode()).hexdigest()[:8]


def _look_for_traces(plan: Config, number: int) -> None:
    found = surroundings()
    first = _first.setdefault(os.getpid(), found)
    for name, value in found.items():
        if value != first[name]:
            say(plan, "carried", trial=number, fact=name, was=str(first[name]), now=str(value))


def say(plan: Mapping[str, Any], what: str, **facts: Any) -> None:
    """A line in the storm's log, whatever the trial has done to its process."""
    acts.say(plan, what, **facts)
