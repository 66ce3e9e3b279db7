"""Scripted agents on the command line: one with real gains, and one that is killed at every call."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

Cli = Callable[..., Any]
SEEDS: Final = 8
CODE: Final = """
import pathlib, random
import raysweep as rs

def f(config):
    with open(pathlib.Path(__file__).parent / "ran.txt", "a") as ran:
        ran.write(f"{config['gain']} {config['seed']}\\n")
    noise = random.Random(repr(config)).gauss(0, 0.3)
    rs.report({"auc": config["seed"] + config["gain"] + noise})
"""
AGENT: Final = """
import contextlib, io, json, os, signal, sys
from raysweep.cli import main

kill_at, calls = int(sys.argv[1]), 0

def call(*words):
    global calls
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main([*words, "--json", "--storage", "store"])
    calls += 1
    if calls == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
    assert code == 0, out.getvalue()
    return json.loads(out.getvalue())

for name in ("base", "change"):
    plan = call("plan", f"{name}.json", "--key", "k")
    call("sweep", f"{name}.json", "--key", "k", "--plan", plan["token"], "--here")
    call("status", plan["sweep_id"])
verdict = call("compare", "base", "change", "--by", "seed")["verdict"]
print(json.dumps({"calls": calls, "verdict": verdict}))
"""


def _write(folder: Path, name: str, gain: float) -> str:
    (folder / "agents_trainable.py").write_text(CODE)
    spec = {
        "name": name,
        "trainable": "agents_trainable:f",
        "param_space": {"gain": gain, "seed": {"grid_search": list(range(SEEDS))}},
        "search": "grid",
        "metric": "auc",
        "mode": "max",
        "isolation": "inline",
        "max_concurrent_trials": 1,
    }
    (folder / f"{name}.json").write_text(json.dumps(spec))
    return f"{name}.json"


def test_an_agent_finds_the_gains_and_keeps_nothing_else(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The baseline moves with each change that it keeps."""
    monkeypatch.syspath_prepend(tmp_path)

    def run(name: str, gain: float) -> None:
        spec = _write(tmp_path, name, gain)
        plan = json.loads(cli("plan", spec, "--key", "k", "--storage", "store", "--json").out)
        ran = cli(
            "sweep", spec, "--key", "k", "--plan", plan["token"], "--here", "--storage", "store", "--json"
        )
        assert ran.code == 0, ran.err

    run("base", 0.0)
    at, base, kept = 0.0, "base", []
    for number, gain in enumerate((0.0, 2.0, -2.0, 0.0, 2.0)):
        name = f"change-{number}"
        run(name, at + gain)
        words = ("compare", base, name, "--by", "seed", "--level", "0.01", "--storage", "store", "--json")
        if json.loads(cli(*words).out)["verdict"] == "better":
            at, base = at + gain, name
            kept.append(number)
    assert kept == [1, 4]


@pytest.mark.slow
def test_an_agent_that_is_killed_at_every_call_runs_nothing_twice(tmp_path: Path) -> None:
    """`kill -9` after each call in turn; each life begins at the first call again."""
    for name, gain in (("base", 0.0), ("change", 2.0)):
        _write(tmp_path, name, gain)
    (tmp_path / "agent.py").write_text(AGENT)
    killed = 0
    while True:
        words = [sys.executable, "agent.py", str(killed + 1)]
        life = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        if life.returncode != -signal.SIGKILL:
            break
        killed += 1
    assert life.returncode == 0, life.stderr
    assert json.loads(life.stdout) == {"calls": killed, "verdict": "better"}
    ran = (tmp_path / "ran.txt").read_text().splitlines()
    assert sorted(ran) == sorted(f"{gain} {seed}" for gain in (0.0, 2.0) for seed in range(SEEDS))
    assert (
        len([each for each in os.listdir(tmp_path / "store") if each.startswith(("base-", "change-"))]) == 2
    )
