# ruff: noqa: E501  (one case a line)
"""Bad input: one line that names the field and the fix, exit code 2, nothing written. No Ray is started."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raysweep.outcome import SweepOutcome
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.specs import SweepSpec, sweep_id
from raysweep.storage.objects.opening import open_store

SWEEP: dict[str, Any] = {
    "name": "flights",
    "trainable": "examples.quick:quadratic",
    "param_space": {"lr": {"loguniform": [1e-4, 1e-1]}},
    "metric": "loss",
    "mode": "min",
}
TRAIN: dict[str, Any] = {"trainable": "examples.quick:steps"}
ABSENT = object()


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """A storage path with something in it already."""
    folder = tmp_path / "store"
    (folder / "other").mkdir(parents=True)
    (folder / "other" / "file").write_text("x")
    return folder


def listing(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.lstat().st_mtime_ns) for path in folder.rglob("*"))


@pytest.fixture
def refusal(cli: Callable[..., Any], storage: Path) -> Callable[..., str]:
    """The error line of a command that is refused; checks all that holds of each."""

    def refuse(*arguments: Any, code: int = 2) -> str:
        before = listing(storage)
        ran = cli(*arguments)
        assert ran.code == code, ran
        assert ran.out == ""
        line = ran.err.rstrip("\n")
        assert line.startswith("error: "), ran.err
        assert "\n" not in line
        assert "Traceback" not in line
        assert listing(storage) == before
        return line.removeprefix("error: ")

    return refuse


def changed(fields: dict[str, Any], changes: dict[str, Any]) -> str:
    merged = {**fields, **changes}
    return json.dumps({name: value for name, value in merged.items() if value is not ABSENT})


def space(value: Any) -> dict[str, Any]:
    return {"param_space": {"x": value}}


@pytest.mark.parametrize(
    ("changes", "field", "fix"),
    [
        # the wrong type, for each kind of field
        ({"name": 3}, "name", 'write "3" in quotes'),
        ({"trainable": 3}, "trainable", 'write "package.module:function"'),
        ({"num_samples": "ten"}, "num_samples", "write a number"),
        ({"num_samples": 1.5}, "num_samples", "write a whole number"),
        ({"stop": {"target": "high"}}, "stop.target", "write a number"),
        ({"checkpoint": {"keep_best": "yes"}}, "checkpoint.keep_best", "write true, or such as"),
        ({"tags": ["a"]}, "tags", "write a mapping"),
        ({"tags": {"a": 1}}, "tags.a", 'write "1" in quotes'),
        ({"failure": 3}, "failure", "write a mapping"),
        ({"resources": "one"}, "resources", "write a mapping"),
        ({"resources": {"bundles": 3}}, "resources.bundles", "write a list"),
        ({"param_space": [1]}, "param_space", 'write {"lr": {"loguniform": [1e-4, 1e-1]}}'),
        ({"search": 3}, "search", 'write "auto"'),
        # unknown names
        ({"num_sample": 3}, "num_sample", "did you mean 'num_samples'?"),
        ({"stop": {"dead_line": 1}}, "stop.dead_line", "did you mean 'deadline'?"),
        ({"scheduler": {"asha": {"maxt": 3}}}, "scheduler.asha.maxt", "did you mean 'max_t'?"),
        ({"search": "bayes"}, "search", "use one of 'auto', 'random', 'grid'"),
        ({"scheduler": "ashaa"}, "scheduler", "did you mean 'asha'?"),
        ({"mode": "maximise"}, "mode", "did you mean 'max'?"),
        ({"isolation": "proces"}, "isolation", "did you mean 'process'?"),
        ({"score": "latest"}, "score", "did you mean 'last'?"),
        ({"resources": {"strategy": "PAK"}}, "resources.strategy", "did you mean 'PACK'?"),
        # what is missing, empty or out of range
        ({"metric": ABSENT}, "metric", "add it"),
        ({"metric": ""}, "metric", "give it a value"),
        ({"name": "  "}, "name", 'give a name such as "flights"'),
        ({"num_samples": 0}, "num_samples", "give a number >= 1"),
        ({"num_samples": -1}, "num_samples", "give a number >= 1"),
        ({"seed": -1}, "seed", "give a number >= 0"),
        ({"max_concurrent_trials": 0}, "max_concurrent_trials", "give a number >= 1"),
        ({"failure": {"max_failed_fraction": 2}}, "failure.max_failed_fraction", "give a number <= 1"),
        ({"checkpoint": {"keep_last": 0}}, "checkpoint.keep_last", "give a number >= 1"),
        ({"resources": {"cpu": -1}}, "resources.cpu", "give a number >= 0"),
        ({"resources": {"cpu": 0}}, "resources", "give an amount above 0"),
        ({"scheduler": {"asha": {"max_t": 3, "grace_period": 9}}}, "scheduler.asha.grace_period", "set grace_period to 3 or less"),
        # the search space
        (space({"choice": []}), "param_space.x.choice", "give at least one"),
        (space({"choice": 3}), "param_space.x.choice", "write [a, b, c]"),
        (space({"uniform": [1, 0]}), "param_space.x.uniform", "swap them: [0, 1]"),
        (space({"uniform": [0]}), "param_space.x.uniform", 'write {"uniform": [lower, upper]}'),
        (space({"uniform": ["a", 1]}), "param_space.x.uniform", "write a number"),
        (space({"loguniform": [0, 1]}), "param_space.x.loguniform", "raise it, or drop the log"),
        (space({"randint": [0.5, 3]}), "param_space.x.randint", "use a float domain"),
        (space({"quniform": [0, 1, 0]}), "param_space.x.quniform", "give a step"),
        (space({"unifrom": [0, 1]}), "param_space.x", "did you mean 'uniform'?"),
        (space({"sample_from": "lambda config: 1"}), "param_space.x.sample_from", 'write "package.module:function"'),
        (space({"sample_from": "no_such_module:fn"}), "param_space.x.sample_from", "put its folder on PYTHONPATH"),
        ({"search": "grid"}, "search", 'write {"grid_search": [...]}'),
        ({"search": "tpe", **space({"grid_search": [1, 2]})}, "param_space.x", 'write {"choice": [...]}'),
        # the trainable
        ({"trainable": "quadratic"}, "trainable", 'write "package.module:quadratic"'),
        ({"trainable": "examples/quick.py:quadratic"}, "trainable", 'write "examples.quick:quadratic"'),
        ({"trainable": "no_such_module:train"}, "trainable", "put its folder on PYTHONPATH"),
        ({"trainable": "examples.quik:quadratic"}, "trainable", "did you mean 'examples.quick'?"),
        # when it ends
        ({"stop": {"deadline": "2126-01-01T00:00:00"}}, "stop.deadline", 'write "2126-01-01T00:00:00+00:00"'),
        ({"stop": {"deadline": "soon"}}, "stop.deadline", "write one such as"),
        ({"stop": {"deadline": "2020-01-01T00:00:00Z"}}, "stop.deadline", "give a later one"),
        ({"stop": {"time_budget_s": -3}}, "stop.time_budget_s", "give a number > 0"),
    ],
)  # fmt: skip
def test_sweep_specs(
    refusal: Callable[..., str],
    tmp_path: Path,
    storage: Path,
    changes: dict[str, Any],
    field: str,
    fix: str,
) -> None:
    (tmp_path / "spec.json").write_text(changed(SWEEP, changes))
    line = refusal("sweep", "spec.json", "--storage", storage)
    assert line.startswith(f"{field}: ")
    assert fix in line.partition("; ")[2]


@pytest.mark.parametrize(
    ("changes", "field", "fix"),
    [
        ({"framework": "jax"}, "framework", "use one of 'data_parallel', 'torch', 'lightgbm'"),
        ({"scaling": {"num_workers": 0}}, "scaling.num_workers", "give a number >= 1"),
        ({"config": [1]}, "config", "give the config of a trial"),
        ({"trainable": ABSENT}, "trainable", "add it"),
        ({"trainable": "no_such_module:train"}, "trainable", "put its folder on PYTHONPATH"),
        ({"failure": {"max_failures": -1}}, "failure.max_failures", "give a number >= 0"),
        ({"warm_start_checkpoint": "/nowhere/0"}, "warm_start_checkpoint", "give outcome.best.checkpoint_uri"),
    ],
)  # fmt: skip
def test_train_specs(
    refusal: Callable[..., str],
    tmp_path: Path,
    storage: Path,
    changes: dict[str, Any],
    field: str,
    fix: str,
) -> None:
    (tmp_path / "spec.json").write_text(changed(TRAIN, changes))
    line = refusal("train", "spec.json", "--storage", storage)
    assert line.startswith(f"{field}: ")
    assert fix in line.partition("; ")[2]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("s.yaml", "name: [a", "s.yaml: not valid YAML at line 1"),
        ("s.yaml", "a: 1\na: 2\n", "s.yaml: not valid YAML at line 2, column 1: the key 'a' is given twice; fix it there"),
        ("s.yaml", "x: !!python/object:os.system {}", "s.yaml: not valid YAML at line 1"),
        ("s.yaml", "", "s.yaml: expected a mapping, got None; write fields such as name: flights"),
        ("s.yaml", "- a\n- b\n", "s.yaml: expected a mapping, got ['a', 'b']; write fields such as name: flights"),
        ("s.yaml", b"name: \xff\xfe", "s.yaml: not valid YAML"),
        ("s.yaml", "{name: a, trainable: a:b, metric: m, mode: max, param_space: {x: {choice: [!!binary aGk=]}}}", "s.yaml: not valid YAML at line 1, column 76: the tag 'binary' means nothing here"),
        ("s.json", "{bad", "s.json: not valid JSON at line 1, column 2"),
        ("s.json", "", "s.json: not valid JSON at line 1, column 1"),
        ("s.json", "[]", "s.json: expected a mapping, got []"),
        ("s.toml", "a = 1", "s.toml: unknown kind of file '.toml'; use a .yaml, .yml or .json file"),
    ],
)  # fmt: skip
def test_files(
    refusal: Callable[..., str], tmp_path: Path, storage: Path, name: str, text: str | bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    assert refusal("sweep", name, "--storage", storage).startswith(said)


def test_a_file_that_is_not_there(refusal: Callable[..., str]) -> None:
    said = "missing.yaml: cannot be read: No such file or directory; check the path"
    assert refusal("sweep", "missing.yaml") == said


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("{file}", "storage_path: {file} is not a folder; choose another storage_path"),
        ("{file}/below", "storage_path: {file} is not a folder; choose another storage_path"),
        ("/proc/raysweep", "storage_path: /proc/raysweep is not writable"),
        ("hdfs://a/b", "storage_path: unknown scheme 'hdfs' in 'hdfs://a/b'; use one of"),
        ("s4://a/b", "storage_path: unknown scheme 's4'"),
        ("gcs://a/b", "storage_path: unknown scheme 'gcs' in 'gcs://a/b'; did you mean 'gs://'?"),
        ("s3://", "storage_path: 's3://' names no bucket or folder; write \"s3://bucket/folder\""),
        ("s3://key:secret@bucket/a", "storage_path: has credentials or an '@' in it"),
        ("", "storage_path: is empty; write"),
    ],
)
def test_storage_paths(refusal: Callable[..., str], tmp_path: Path, path: str, said: str) -> None:
    file = tmp_path / "a-file"
    file.write_text("in the way")
    (tmp_path / "s.json").write_text(json.dumps(SWEEP))
    line = refusal("sweep", "s.json", "--storage", path.format(file=file))
    assert line.startswith(said.format(file=file))
    assert file.read_text() == "in the way"
    assert "secret" not in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["swep"], "No such command 'swep'. Did you mean 'sweep'?; see raysweep --help"),
        (["sweep"], "Missing argument 'SPEC'; see raysweep sweep --help"),
        (["sweep", "s.json", "--sorage", "x"], "No such option: --sorage"),
        (["sweep", "s.json", "--num-cpus", "two"], "Invalid value for '--num-cpus'"),
        (["sweep", "s.json", "--num-cpus", "0"], "Invalid value for '--num-cpus'"),
        (["sweep", "s.json", "--set", "num_samples"], "--set: 'num_samples' is not path=value; write --set stop.target=0.9"),
        (["sweep", "s.json", "--set", "num_samples=ten"], "num_samples: expected a whole number, got 'ten'; write a number"),
        (["sweep", "s.json", "--set", "num_samples.x=3"], "--set: 'num_samples.x=3': 'num_samples' holds no fields"),
        (["sweep", "s.json", "--set", "stop.target=[1"], "--set stop.target: not valid YAML"),
        (["train", "t.json", "--config", "[1]"], "--config: expected a JSON mapping, got '[1]'; write {\"lr\": 0.1}"),
        (["train", "t.json", "--config", "{"], "--config: not valid JSON"),
        (["train", "t.json", "--from-sweep", "nothing"], "no sweep 'nothing' at "),
        (["schema", "outcome"], "Invalid value for 'kind': 'outcome' is not one of 'sweep', 'train', 'pipeline'; see raysweep schema --help"),
        (["status", "nothing"], "no sweep 'nothing' at "),
        (["best", "nothing"], "no sweep 'nothing' at "),
        (["trials", "nothing"], "no sweep 'nothing' at "),
        (["resume", "nothing"], "no sweep 'nothing' at "),
        (["status", ".."], "no sweep '..' at "),
    ],
)  # fmt: skip
def test_options(
    refusal: Callable[..., str], tmp_path: Path, storage: Path, arguments: list[str], said: str
) -> None:
    (tmp_path / "s.json").write_text(json.dumps({**SWEEP, "num_samples": 2}))
    (tmp_path / "t.json").write_text(json.dumps(TRAIN))
    at = ["--storage", str(storage)] if arguments[0] not in ("schema", "swep") and len(arguments) > 1 else []
    assert refusal(*arguments, *at).startswith(said)


def test_the_key_of_a_sweep_that_ended_under_another_spec(
    refusal: Callable[..., str], tmp_path: Path, storage: Path
) -> None:
    spec = SweepSpec.from_any({**SWEEP, "storage_path": str(storage)})
    folder = SweepFolder(open_store(str(storage)), sweep_id("flights", "k"))
    folder.write_spec_if_absent(SweepRecord(digest=spec.digest(), key="k", seed=1, spec=spec.to_dict()))
    fields: dict[str, Any] = {"metric": "loss", "mode": "min", "started_at": 0.0, "ended_at": 1.0}
    folder.write_outcome_if_absent(
        SweepOutcome(
            sweep_id=folder.sweep_id,
            name="flights",
            status="completed",
            spec_digest=spec.digest(),
            **fields,
        )
    )
    (tmp_path / "s.json").write_text(changed(SWEEP, {"param_space": {"lr": {"loguniform": [1e-3, 1e-1]}}}))
    assert refusal("sweep", "s.json", "--storage", storage, "--key", "k", code=4) == (
        f"spec: sweep '{folder.sweep_id}' was started with another spec: "
        'param_space.lr: {"loguniform": [0.0001, 0.1]} -> {"loguniform": [0.001, 0.1]}; '
        "use another key to start a new sweep, or change the spec back"
    )


def test_a_traceback_only_where_it_is_asked_for(
    cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYSWEEP_DEBUG", "1")
    ran = cli("sweep", "missing.yaml")
    assert ran.code == 2
    assert "Traceback" in ran.err
    assert ran.err.rstrip().splitlines()[-1].startswith("error: missing.yaml: cannot be read")


@pytest.mark.parametrize("command", ["sweep", "plan"])
@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"scheduler": "no_such_package:Mine"}, "scheduler: no module 'no_such_package'"),
        ({"search": {"tests.unit.plugins:Draws": {"att": 1}}}, "search.tests.unit.plugins:Draws.att: unknown field 'att'; did you mean 'at'?"),
        ({"search": {"tests.unit.plugins:Draws": {"does": "raises first"}}}, "search: 'tests.unit.plugins:Draws' failed in ask: RuntimeError: no luck"),
    ],
)  # fmt: skip
def test_a_policy_that_cannot_be_used(
    refusal: Callable[..., str],
    tmp_path: Path,
    storage: Path,
    command: str,
    fields: dict[str, Any],
    line: str,
) -> None:
    path = tmp_path / "spec.json"
    path.write_text(changed(SWEEP, fields))
    assert refusal(command, str(path), "--storage", str(storage)).startswith(line)
