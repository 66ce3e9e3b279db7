"""`raysweep pipeline`: the options of `sweep`, the default key, and what is said before anything starts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.cli.help_groups import EXAMPLES, GROUPS
from raysweep.cli.process import _commands
from raysweep.outcome import PipelineOutcome, SweepOutcome
from raysweep.runs.reading.naming.siblings import unfinished_sibling
from raysweep.specs import RunRequest, SweepSpec
from tests.unit.cli.nights import Nights

Cli = Callable[..., Any]
SWEEP: dict[str, Any] = {
    "name": "churn",
    "trainable": "examples.quick:steps",
    "param_space": {"x": {"uniform": [0, 9]}},
    "metric": "auc",
    "mode": "max",
    "num_samples": 4,
}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What `run_pipeline` is called with; it returns a night."""
    calls: list[dict[str, Any]] = []

    def run_pipeline(spec: Any, **given: Any) -> PipelineOutcome:
        calls.append({"spec": spec, **given})
        outcome = SweepOutcome(
            sweep_id="churn-0123456789", name="churn", key=given["key"], status="completed", metric="auc",
            mode="max", started_at=1.0, ended_at=2.0, uri=f"{spec.sweep.storage_path}/churn-0123456789",
        )  # fmt: skip
        return PipelineOutcome(sweep=outcome)

    monkeypatch.setattr("raysweep.pipeline.run_pipeline", run_pipeline)
    return calls


def write(folder: Path, **more: Any) -> Path:
    path = folder / "night.json"
    path.write_text(json.dumps({"sweep": SWEEP, **more}))
    return path


def test_the_options_of_sweep(cli: Cli, ran: list[dict[str, Any]], tmp_path: Path) -> None:
    night, out = write(tmp_path), tmp_path / "out"
    flags = [
        "--working-dir",
        tmp_path,
        "--py-module",
        tmp_path,
        "--env",
        "A=b",
        "--address",
        "http://head:8265",
    ]
    done = cli("pipeline", night, "--set", "sweep.num_samples=2", "--key", "k", "--storage", out, *flags)
    assert done.code == 0, done.err
    [call] = ran
    assert (call["spec"].sweep.num_samples, call["key"], call["address"]) == (2, "k", "http://head:8265")
    job = call["job"]
    assert (job.working_dir, list(job.py_modules)) == (str(tmp_path), [str(tmp_path)])
    assert job.env_vars["A"].get_secret_value() == "b"
    assert f"raysweep nights churn --storage {out}" in done.out, "its summary ends with what to do next"
    assert cli("pipeline", night, "--num-cpus", "3", "--storage", out).code == 0
    assert (ran[1]["num_cpus"], ran[1]["job"]) == (3, None)


def test_options_of_jobs_need_a_jobs_api(cli: Cli, ran: list[dict[str, Any]], tmp_path: Path) -> None:
    refused = cli("pipeline", write(tmp_path), "--detach", "--storage", tmp_path / "out")
    assert (refused.code, "there is no --address" in refused.err) == (2, True)
    assert ran == []


def test_a_setting_of_a_part_that_is_a_file_of_its_own(cli: Cli, ran: Any, tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text(json.dumps(SWEEP))
    night = tmp_path / "night.json"
    night.write_text(json.dumps({"sweep": "sweep.json"}))
    assert cli("pipeline", night, "--set", "sweep.num_samples=7", "--storage", tmp_path / "out").code == 0
    assert ran[0]["spec"].sweep.num_samples == 7
    bad = cli("pipeline", night, "--set", "sweep.num_sample=7", "--storage", tmp_path / "out")
    assert (bad.code, "did you mean 'num_samples'?" in bad.err) == (2, True)


def test_the_default_key_is_that_of_the_sweep_alone_and_is_printed(
    cli: Cli, ran: list[dict[str, Any]], tmp_path: Path
) -> None:
    done = cli("pipeline", write(tmp_path), "--storage", tmp_path / "out")
    spec = SweepSpec.from_any({**SWEEP, "storage_path": str(tmp_path / "out")})
    assert ran[0]["key"] == RunRequest.of(spec, None).run.key
    assert done.err.startswith(f"key {ran[0]['key']} (the spec itself; --key ")


def test_a_detached_pipeline_submits_the_first_step_that_has_not_ended(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nights = Nights(tmp_path / "out")
    nights.add("k")
    ended = rs.load("churn@k", nights.url)
    submitted: list[str] = []
    answers: list[Any] = [None, ended, None]

    def run(request: Any, address: str, job: Any, *, is_json: bool) -> Any:
        submitted.append(request.run.id)
        assert job.detach
        return answers.pop(0)

    monkeypatch.setattr("raysweep.cli.remote.run", run)
    night = write(tmp_path, gate={"seeds": 2})
    flags = ["--key", "k", "--detach", "--address", "http://head:8265", "--storage", nights.url]
    first = cli("pipeline", night, *flags)
    assert (first.code, submitted) == (0, [ended.sweep_id])
    assert "run this again to continue with what follows, with --key k" in first.err
    second = cli("pipeline", night, *flags)
    assert (second.code, submitted[:2]) == (0, [ended.sweep_id] * 2)
    assert submitted[2].startswith("churn-gate-"), "the sweep has ended: its gate is next"


def test_a_detached_pipeline_is_refused_with_its_registry_before_anything_is_submitted(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("raysweep.cli.remote.run", lambda *_, **__: pytest.fail("submitted"))
    night = write(tmp_path, gate={"seeds": 2}, registry="tests.unit.cli.nights:Nights")
    ran = cli("pipeline", night, "--key", "k", "--detach", "--address", "http://head:8265")
    assert (ran.code, "is not a subclass of raysweep.hooks.model_registry" in ran.err) == (2, True)


# --- an unfinished sibling


def test_an_unfinished_sibling_with_another_spec_is_told_of(tmp_path: Path) -> None:
    spec = SweepSpec.from_any({**SWEEP, "storage_path": str(tmp_path)})
    assert unfinished_sibling(RunRequest.of(spec, None)) == ""
    nights = Nights(tmp_path)
    nights.add("spec-0123456789abcdef", days_ago=1)
    nights.begin("by hand")
    assert unfinished_sibling(RunRequest.of(spec, None)) == "", "one has ended, one has a key of its own"
    begun = nights.begin("spec-fedcba9876543210")
    said = unfinished_sibling(RunRequest.of(spec, None))
    assert said.startswith(f"{begun.sweep_id} of the same name has not ended (starting, 0 trials have ended")
    assert "and has another spec (num_samples: 3 -> 4" in said
    assert f"`raysweep resume {begun.sweep_id}` continues the other one" in said
    own = RunRequest.of(spec, None)
    nights.begin(own.run.key)
    assert unfinished_sibling(own) == "", "its own is there: it is resumed"


# --- help


def test_each_command_is_in_a_group_and_has_an_example(cli: Cli) -> None:
    listed = {name for members in GROUPS.values() for name in members}
    assert set(_commands()) <= listed
    for name in _commands():
        assert EXAMPLES[name].startswith(f"raysweep {name}")
        if name != "emit":
            told = " ".join(cli(name, "--help").out.split())
            assert f"Example: {' '.join(EXAMPLES[name].split())}" in told, name
    whole = cli("--help").out
    heads = [line for line in whole.splitlines() if line.endswith(":") and line[0] != " "]
    assert heads == ["Options:", *(f"{title}:" for title in GROUPS)]
    assert "Champions:" in heads
    assert "..." not in whole.partition("Run:")[2], "each summary is whole"
