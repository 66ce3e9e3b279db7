"""Trainables for the tests of the Ray shell. Each notes what it does in the file `config["log"]`."""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import raysweep as rs

Config = dict[str, Any]

LOADED_AT = time.time()
calls = 0


def note(config: Config, *words: object) -> None:
    """One line, in one write: lines of several processes do not mix."""
    with open(config["log"], "ab", buffering=0) as file:
        file.write((" ".join(map(str, words)) + "\n").encode())


def start(config: Config) -> rs.trial.TrialContext:
    context = rs.get_context()
    note(config, "start", context.number, context.attempt, os.getpid(), time.time())
    return context


def noop(config: Config) -> dict[str, float]:
    start(config)
    return {"loss": config["x"]}


def dated(config: Config) -> dict[str, float]:
    """Notes which config runs on which day's data; one of them does not run any more."""
    note(config, "ran", config["x"], config["day"])
    if config["x"] == config["broken"]:
        raise KeyError("depth")
    return {"loss": config["x"]}


def waits_below_one(config: Config) -> dict[str, float]:
    """A config below 1 ends once `config["go"]` is there."""
    while config["x"] < 1 and not os.path.exists(config["go"]):
        time.sleep(0.05)
    return {"loss": config["x"]}


def surroundings(config: Config) -> dict[str, Any]:
    """Where and how the trial runs."""
    global calls
    calls += 1
    start(config)
    return {
        "loss": config["x"],
        "pid": os.getpid(),
        "is_main": threading.current_thread() is threading.main_thread(),
        "calls": calls,
        "loaded_at": LOADED_AT,
        "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "random": random.random(),
        "numpy": float(np.random.random()),
        "context": [rs.get_context().trial_id, rs.get_context().attempt, rs.get_context().resources],
    }


def nested(config: Config) -> dict[str, Any]:
    """Runs a task of its own on the cluster, within the trial's placement group."""
    import ray

    @ray.remote(num_cpus=1)
    def group() -> str | None:
        found = ray.util.get_current_placement_group()
        return found.id.hex() if found else None

    ours = ray.util.get_current_placement_group()
    return {"loss": 1.0, "ours": ours.id.hex(), "task": ray.get(group.options(num_cpus=0.5).remote())}


def is_connected(config: Config) -> dict[str, Any]:
    ray = sys.modules.get("ray")
    return {"loss": 1.0, "connected": bool(ray and ray.is_initialized())}


def many_reports(config: Config) -> None:
    start(config)
    began = time.perf_counter()
    for step in range(config["reports"]):
        rs.report({"loss": 1.0 / (step + 1), "step": step})
    note(config, "took", time.perf_counter() - began)


def kinds_of_values(config: Config) -> None:
    rs.report(
        {
            "loss": np.float32(0.5),
            "int": np.int64(7),
            "flag": np.bool_(True),
            "array": np.arange(3),
            "zero_d": np.array(2.5),
            "huge": 2**80,
            "long": 2**64 - 1,
            "text": "é",
            "nothing": None,
            "nested": {"a": [1, 2.5, "b"]},
        }
    )


def reports_value(config: Config) -> None:
    """Reports a value by the name of its kind; after one that is a float, a finite one."""
    values = {"one": 1.0, "nan": float("nan"), "inf": float("inf"), "object": object(), "surrogate": "\ud800"}
    start(config)
    rs.report({"loss": values[config["kind"]]})
    if config["kind"] in ("nan", "inf"):
        rs.report({"loss": 0.25})


def other_name(config: Config) -> dict[str, float]:
    start(config)
    return {"los": 1.0}


def raises_with_surrogates(config: Config) -> None:
    start(config)
    raise RuntimeError("bad name: \ud800")


def reports_then_returns(config: Config) -> Any:
    """A finished trial, which returns what is no metric."""
    rs.report({"loss": 0.5, "model": object()})
    return config["result"] if config["result"] != "model" else Model()


class Model:
    """What a training function may return."""


def returns_odd_names(config: Config) -> Any:
    return {"loss": 0.5, 1: "one", "blob": b"x", "tags": {3}}


def returns_nonsense(config: Config) -> Any:
    return [1, 2]


def waits(config: Config) -> None:
    """Each report waits; then the journal must hold it."""
    from raysweep.core.vocabulary.events import TrialReported
    from raysweep.runs.folder import SweepFolder
    from raysweep.storage.objects.opening import open_store

    journal_of = SweepFolder(open_store(config["storage"]), rs.get_context().sweep_id)
    for step in range(3):
        began = time.perf_counter()
        rs.report({"loss": 1.0 - step / 10, "step": step}, wait=True)
        took = time.perf_counter() - began
        rows = 0
        for line in journal_of.journal().contents().records:
            event = decode_event(line)
            if isinstance(event, TrialReported) and event.trial == rs.get_context().number:
                rows += len(event.rows)
        note(config, "durable", step, rows, took)


def decode_event(line: bytes) -> object:
    from raysweep.core import decode

    return decode(line)


def steps(config: Config) -> None:
    """Steps with a checkpoint each; fails in the ways that `config` asks for."""
    context = start(config)
    step = 0
    checkpoint = rs.get_checkpoint()
    if checkpoint is not None:
        with checkpoint as folder:
            step = json.loads((Path(folder) / "at.json").read_text())["step"]
        note(config, "resumed", context.number, context.attempt, step)
    while step < config.get("steps", 5):
        step += 1
        note(config, "step", context.number, step)
        is_slow = context.number == config.get("slow_trial") and context.attempt == 1 and step > 2
        time.sleep(2 if is_slow else config.get("pause", 0))
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "at.json").write_text(json.dumps({"step": step}))
            # What is reported is on its way on other threads, unless it is waited for.
            dies = step == config.get("dies_at") and context.attempt <= config.get("deaths", 1)
            rs.report({"loss": config["x"] / step, "step": step}, checkpoint=folder, wait=dies)
        if dies:
            die(config["how"])


def steps_at_scale(config: Config) -> None:
    """Steps with a loss that is larger at a larger `size`, which a search of several scales names."""
    context = start(config)
    for step in range(1, 5):
        time.sleep(config["pause"])
        rs.report({"loss": config["size"] + config["x"] + config["y"] / step, "size": config["size"]})
    note(config, "end", context.number)


def die(how: str) -> None:
    if how == "raise":
        raise ValueError("as asked\nsecond line")
    if how == "exit":
        os._exit(3)
    if how == "sys.exit":
        sys.exit(4)
    if how == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "segfault":
        ctypes.string_at(0)


def one_dies(config: Config) -> dict[str, float]:
    """Trial 1 dies at its first attempt; all take a moment."""
    context = start(config)
    time.sleep(0.1)
    if context.number == 1 and context.attempt == 1:
        die(config["how"])
    return {"loss": config["x"]}


def finishes_then_next_dies(config: Config) -> dict[str, float]:
    """Trial 20 takes its process with it the moment it begins, with its forerunners' results just sent."""
    context = start(config)
    if context.number == 20 and context.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"loss": config["x"]}


def always_raises(config: Config) -> None:
    start(config)
    raise ValueError("as asked\nsecond line")


def infeasible(config: Config) -> dict[str, float]:
    """Trials 0 to 3 say that their config cannot work; of a gang, its second rank does."""
    context = start(config)
    if context.number < 4 and context.rank == context.world_size - 1:
        raise rs.Infeasible("needs 90 GB")
    return {"loss": config["x"]}


def type_error(config: Config) -> None:
    start(config)
    sum([None])  # type: ignore[list-item]


def stoppable(config: Config) -> None:
    """Trial 0 is good, others are bad; `except Exception` must not keep them."""
    context = start(config)
    try:
        for step in range(1, 100):
            try:
                rs.report({"loss": float(context.number), "step": step}, wait=True)
            except Exception as error:  # noqa: BLE001
                note(config, "swallowed", type(error).__name__)
            time.sleep(0.01)
    except rs.TrialStopped as stopped:
        note(config, "stopped", context.number, str(stopped.reason))
        raise
    finally:
        note(config, "finally", context.number)


def sleeper(config: Config) -> None:
    """Reports once; then the trials that are to be stopped sleep."""
    context = start(config)
    rs.report({"loss": float(context.number)})
    if context.number in config.get("sleepers", [1]):
        try:
            time.sleep(60)
        finally:
            note(config, "woke", context.number)


def stubborn(config: Config) -> None:
    """The trial `config["stubborn"]` swallows whatever is raised in it."""
    context = start(config)
    rs.report({"loss": float(context.number)})
    until = time.monotonic() + 60
    while context.number == config["stubborn"] and time.monotonic() < until:
        try:
            time.sleep(0.01)
            rs.report({"loss": 0.0})
        except BaseException:  # noqa: BLE001
            continue


def leaves_children(config: Config) -> dict[str, float]:
    """Starts a process and does not wait for it."""
    child = subprocess.Popen(["sleep", "300"])
    note(config, "child", child.pid)
    return {"loss": 1.0}


def slow(config: Config) -> dict[str, float]:
    start(config)
    time.sleep(config.get("pause", 0.2))
    note(config, "end", rs.get_context().number)
    return {"loss": config["x"]}


def forever(config: Config) -> None:
    context = start(config)
    for step in range(1, 10_000):
        rs.report({"loss": config["x"] / step})
        time.sleep(0.02)
    note(config, "end", context.number)


def flights(config: dict[str, Any]) -> None:
    """The flights example, with a line in `config["log"]` for each start: the trial, where it begins."""
    from examples.flights import train

    context = rs.get_context()
    with open(config["log"], "a") as log:
        log.write(f"{context.trial_id} {context.iteration}\n")
    train({name: value for name, value in config.items() if name != "log"})


def soaked(config: Config) -> None:
    """A short trial of three reports; every tenth stores a checkpoint on its way."""
    context = start(config)
    for step in range(context.iteration + 1, 4):
        time.sleep(config["pause"])
        if context.number % 10 == 0 and step == 2:
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "at").write_text(str(step))
                rs.report({"loss": config["x"] / step}, checkpoint=folder)
        else:
            rs.report({"loss": config["x"] / step})


def heir(config: Config) -> None:
    """Nine steps; each checkpoint holds which trial made each step on the way to it."""
    context = rs.get_context()
    by: list[int] = []
    checkpoint = rs.get_checkpoint()
    if checkpoint is not None:
        with checkpoint as folder:
            by = json.loads((Path(folder) / "at.json").read_text())
    while len(by) < 9:
        by.append(context.number)
        note(config, "step", context.number, len(by))
        time.sleep(config.get("pause", 0))
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "at.json").write_text(json.dumps(by))
            rs.report({"loss": config["x"] / len(by)}, checkpoint=folder)


def stores_itself(config: Config) -> None:
    """Four steps; keeps each where it likes, and reports the address. Its process dies after the second."""
    step = 0
    if (checkpoint := rs.get_checkpoint()) is not None:
        with checkpoint as folder:
            step = int((folder / "step").read_text())
    note(config, "from", step)
    while step < 4:
        step += 1
        kept = Path(config["kept"]) / str(step)
        kept.mkdir(parents=True)
        (kept / "step").write_text(str(step))
        rs.report({"loss": 1.0 / step}, checkpoint_uri=str(kept), wait=True)
        if step == 2 and rs.get_context().attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)


def assigned_memory(config: dict[str, Any]) -> dict[str, float]:
    """What Ray has reserved for the worker, in MB."""
    import ray

    assigned = ray.get_runtime_context().get_assigned_resources()  # type: ignore[no-untyped-call]
    return {"loss": config["x"], "memory_mb": assigned.get("memory", 0.0) / 1e6}
