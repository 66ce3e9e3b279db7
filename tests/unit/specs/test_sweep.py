# ruff: noqa: E501  (one case a line)
"""What a sweep's spec takes, refuses and means."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.specs import FailurePolicy, Resources, SweepSpec, TrainSpec


def test_defaults(spec: SweepSpec) -> None:
    assert (spec.num_samples, spec.seed, spec.score, spec.storage_path) == (1, None, "last", "~/raysweep")
    assert (spec.search.kind, spec.scheduler.kind) == ("random", "fifo")
    assert spec.effective_isolation == "worker"
    assert [*spec.resources.shape().bundles] == [{"CPU": 1.0}]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"num_samples": 0}, "num_samples: must be >= 1, got 0; give a number >= 1"),
        ({"num_samples": "5"}, "num_samples: expected a whole number, got '5'; write 5 without quotes"),
        ({"num_samples": 1.5}, "num_samples: expected a whole number, got 1.5; write a whole number"),
        ({"num_samples": True}, "num_samples: expected a whole number, got True; write a whole number"),
        ({"mode": "maximum"}, "mode: 'maximum' is not known here; did you mean 'max'?"),
        ({"mode": "minimize"}, "mode: 'minimize' is not known here; did you mean 'min'?"),
        ({"mode": "MAX"}, "mode: 'MAX' is not known here; did you mean 'max'?"),
        ({"metric": ""}, "metric: is empty; give it a value, or leave it out: nothing is ranked then"),
        ({"name": "  "}, 'name: is empty; give a name such as "flights"'),
        ({"name": "???"}, "name: '???' has no ASCII letter or digit; give a name such as \"flights\""),
        ({"seed": -1}, "seed: must be >= 0, got -1; give a number >= 0"),
        ({"max_concurrent_trials": 0}, "max_concurrent_trials: must be >= 1, got 0; give a number >= 1"),
        ({"isolation": "thread"}, "isolation: 'thread' is not known here; use one of 'worker', 'process', 'actor', 'inline'"),
        ({"tags": {"a": 1}}, 'tags.a: expected a string, got 1; write "1" in quotes'),
        ({"tags": [1]}, "tags: expected a mapping, got [1]; write a mapping"),
        ({"failure": {"max_failuers": 1}}, "failure.max_failuers: unknown field 'max_failuers'; did you mean 'max_failures'?"),
        ({"deadline": "x"}, "deadline: unknown field 'deadline'; did you mean 'stop.deadline'?"),
        ({"stop": {"[key]": 1}}, "stop.[key]: unknown field '[key]'; use one of 'deadline', 'time_budget_s', 'budget', 'budget_key', 'cost_per_hour', 'plateau', 'min_trials', 'target', 'trial', 'trial_time_s', 'trial_plateau', 'trial_patience', 'trial_wilcoxon', 'trial_if', 'grace_s'"),
        ({"keep_last": 2}, "keep_last: unknown field 'keep_last'; did you mean 'checkpoint.keep_last'?"),
        ({"config": {}}, "config: unknown field 'config'; did you mean 'param_space'?"),
        ({"failure": 3}, "failure: expected a mapping, got 3; write a mapping"),
        (
            {"failure": {"backoff_initial_s": 90}},
            "failure.backoff_max_s: 60.0 is below backoff_initial_s 90.0; set backoff_max_s to at least 90.0",
        ),
        ({"failure": {"max_failed_fraction": 1.5}}, "failure.max_failed_fraction: must be <= 1, got 1.5; give a number <= 1"),
        ({"failure": {"backoff_max_s": float("nan")}}, "failure.backoff_max_s: expected a finite number, got nan; write a finite number"),
        ({"stop": {"target": float("inf")}}, "stop.target: expected a finite number, got inf; write a finite number"),
        ({"stop": {"time_budget_s": 0}}, "stop.time_budget_s: must be > 0, got 0; give a number > 0"),
        ({"stop": {"trial": {"step": "3"}}}, "stop.trial.step: expected a number, got '3'; write 3 without quotes"),
        ({"checkpoint": {"upload": "newest"}}, "checkpoint.upload: 'newest' is not known here; use one of 'block', 'latest'"),
        ({"checkpoint": {"upload_limit": "fast"}}, "checkpoint.upload_limit: 'fast' is not a rate; write one such as \"50MiB/s\" or \"1.5 GB/s\""),
        ({"checkpoint": {"upload_limit": 0}}, "checkpoint.upload_limit: must be > 0, got 0; give a number > 0"),
        ({"checkpoint": {"parallel_puts": 8}}, "checkpoint.parallel_puts: unknown field 'parallel_puts'; set the variable RAYSWEEP_PARALLEL_PUTS on the nodes"),
        ({"checkpoint": {"node_cache": 0}}, "checkpoint.node_cache: unknown field 'node_cache'; set the variable RAYSWEEP_NODE_CACHE on the nodes, such as 2GiB"),
        ({"failure": {"max_ooms": 1}}, "failure.max_ooms: unknown field 'max_ooms'; write max_worker_deaths, which counts these too"),
        ({"checkpoint": {"keep_last": 0}}, "checkpoint.keep_last: must be >= 1, got 0; give a number >= 1"),
        ({"search": "tpo"}, "search: 'tpo' is not known here; did you mean 'tpe'?"),
        ({"search": {"tpe": {"multivar": True}}}, "search.tpe.multivar: unknown field 'multivar'; did you mean 'multivariate'?"),
        ({"search": {"tpe": {"n_startup_trials": -1}}}, "search.tpe.n_startup_trials: must be >= 0, got -1; give a number >= 0"),
        ({"search": {"tpe": 3}}, "search.tpe: expected a mapping of options, got 3; write {...}"),
        ({"search": {"tpe": {}, "grid": {}}}, "search: expected one kind, got ['grid', 'tpe']; write \"auto\" or {\"auto\": {...}}"),
        ({"search": "dehb"}, "search: 'dehb' is not known here; write search: bohb with scheduler: hyperband"),
        ({"scheduler": {"dehb": {"max_t": 9}}}, "scheduler: 'dehb' is not known here; write scheduler: hyperband with search: bohb"),
        ({"scheduler": "freeze_thaw"}, "scheduler: 'freeze_thaw' is not known here; write scheduler: {asha: {type: promotion}}"),
        ({"search": {"halton": {}}}, "search: 'halton' is not known here; write search: random"),
        ({"search": "brute_force"}, "search: 'brute_force' is not known here; write search: {random: {distinct: true}}, and num_samples of at least all configs"),
        ({"search": 3}, 'search: expected one of auto, random, grid, tpe, gp, bohb, cma_es, nsga2, nsga3, configs, got 3; write "auto" or {"auto": {...}}'),
        ({"search": "grid"}, "search: 'grid' needs a grid_search in param_space; write {\"grid_search\": [...]} for a parameter, or search: random"),
        ({"scheduler": {"asha": {"grace_period": 200}}}, "scheduler.asha.grace_period: 200 is above max_t 100; set grace_period to 100 or less, or raise max_t"),
        ({"scheduler": {"asha": {"reduction_factor": 1}}}, "scheduler.asha.reduction_factor: must be > 1, got 1; give a number > 1"),
        ({"scheduler": {"asha": {"time_attr": ""}}}, "scheduler.asha.time_attr: must not be empty; give it a value"),
        ({"scheduler": {"kind": "asha", "opts": 1}}, "scheduler.opts: unknown field 'opts'; write \"fifo\" or {\"fifo\": {...}}"),
        ({"storage_path": " "}, 'storage_path: is empty; write "~/raysweep" or "s3://bucket/sweeps", or leave it out'),
        ({"storage_path": "hdfs://x/y"}, "storage_path: unknown scheme 'hdfs' in 'hdfs://x/y'; use one of 'file', 's3', 'gs', 'az', 'memory'"),
        ({"storage_path": "gcs://b/p"}, "storage_path: unknown scheme 'gcs' in 'gcs://b/p'; did you mean 'gs://'?"),
        ({"storage_path": "s3:/b/p"}, "storage_path: 's3:/b/p' is not a URL; write \"s3://b/p\""),
        ({"storage_path": "s3://"}, "storage_path: 's3://' names no bucket or folder; write \"s3://bucket/folder\""),
        ({"storage_path": "$HOME/s"}, "storage_path: '$HOME/s' has $HOME, and variables are not expanded; write \"~/s\""),
        (
            {"storage_path": "s3://${BUCKET}/s"},
            ("storage_path: 's3://${BUCKET}/s' has ${BUCKET}, and variables are not expanded;"
            " write the path itself, or expand it with os.path.expandvars"),
        ),
        (
            {"storage_path": "s3://b/s?endpoint_override=minio:9000&scheme=http"},
            ("storage_path: has a query, ?endpoint_override=minio:9000&scheme=http, which a path cannot have;"
            ' write "s3://b/s", and set AWS_ENDPOINT_URL=http://minio:9000 in the environment where the sweep runs'),
        ),
        (
            {"storage_path": "gs://b/s?x=1"},
            ("storage_path: has a query, ?x=1, which a path cannot have;"
            ' write "gs://b/s", and give options by environment variables (docs/guides/storage.md)'),
        ),
        (
            {"scheduler": {"asha": {"grace_period": 0.5}}},
            ("scheduler.asha.grace_period: 0.5 is not a number of reports, which training_iteration counts;"
            " write 1, or set time_attr to a metric with fractions, such as epochs"),
        ),
        ({"storage_path": 3}, 'storage_path: expected a path or a URL, got 3; write "~/raysweep" or "s3://bucket/sweeps"'),
        ({"trainable": "train"}, "trainable: 'train' names no module; write \"package.module:train\""),
        ({"trainable": ""}, 'trainable: is empty; write "package.module:function"'),
        ({"trainable": "examples/flights.py:train"}, "trainable: 'examples/flights.py:train' is a file's path, not an import path; write \"examples.flights:train\""),
        ({"trainable": "a b:c"}, "trainable: 'a b:c' is not an import path; write \"package.module:function\""),
        ({"trainable": 3}, 'trainable: expected an import path or a callable, got 3; write "package.module:function"'),
    ],
)  # fmt: skip
def test_refused_in_one_line(refusal: Callable[..., str], changes: dict[str, Any], line: str) -> None:
    assert refusal(**changes) == line


def test_credentials_are_refused_and_not_repeated(refusal: Callable[..., str]) -> None:
    line = refusal(storage_path="s3://key:secret@bucket/x")
    assert line.startswith("storage_path: has credentials")
    assert "secret" not in line


def test_missing_fields_say_what_they_are(fields: dict[str, Any]) -> None:
    del fields["name"], fields["param_space"]
    with pytest.raises(SpecError) as caught:
        SweepSpec(**fields)
    assert (
        str(caught.value) == "name: is required; add it: The sweep's name; its id starts with it (and 1 more)"
    )
    (other,) = caught.value.others
    assert other.startswith(
        "param_space: is required; add it: The search space: a mapping of names to domains"
    )


def test_parts_refuse_by_themselves_too() -> None:
    with pytest.raises(SpecError, match=r"^max_failures: must be >= 0"):
        FailurePolicy(max_failures=-1)
    with pytest.raises(SpecError, match=r"^cpu: must be >= 0"):
        Resources(cpu=-1)


def test_from_any_refuses_other_things() -> None:
    with pytest.raises(SpecError, match="expected a SweepSpec, a mapping or a path, got 3"):
        SweepSpec.from_any(3)


def test_a_spec_is_frozen_and_shares_nothing_with_its_input(fields: dict[str, Any]) -> None:
    space = {"opt": {"choice": [{"lr": [1, 2]}]}, "net": {"layers": [64, {"uniform": [0, 1]}]}}
    tags = {"a": "b"}
    spec = SweepSpec(**{**fields, "param_space": space, "tags": tags})
    before = spec.to_json()
    space["opt"]["choice"][0]["lr"].append(3)  # type: ignore[index]
    space["net"]["layers"].append(1)  # type: ignore[union-attr]
    tags["c"] = "d"
    assert spec.to_json() == before
    with pytest.raises(ValueError, match="frozen"):
        spec.name = "other"


def test_sampled_values_are_copies(fields: dict[str, Any]) -> None:
    import random

    spec = SweepSpec(**{**fields, "param_space": {"a": {"choice": [[1]]}, "b": {"const": [2]}, "c": [3]}})
    space = spec.space
    config = space.sample(random.Random(0))
    for name in "abc":
        config[name].append(9)
    assert space.sample(random.Random(0)) == {"a": [1], "b": [2], "c": [3]}


def test_kinds_are_written_with_all_their_options(spec: SweepSpec) -> None:
    wide = spec.replace(search="tpe", scheduler={"asha": {"max_t": 27, "reduction_factor": 3}})
    assert wide.to_dict()["scheduler"] == {
        "asha": {
            "max_t": 27,
            "grace_period": 1,
            "reduction_factor": 3.0,
            "brackets": 1,
            "time_attr": "training_iteration",
            "metric": None,
            "mode": None,
            "type": "stopping",
            "delayed": False,
        }
    }
    assert list(wide.to_dict()["search"]) == ["tpe"]
    assert wide.replace(scheduler={"kind": "asha", "options": {"max_t": 27, "reduction_factor": 3}}) == wide
    assert spec.replace(search={}) == spec


@pytest.mark.parametrize(
    ("resources", "isolation"),
    [({}, "worker"), ({"gpu": 0.5}, "process"), ({"bundles": [{"CPU": 1}, {"GPU": 1}]}, "process")],
)
def test_isolation_follows_the_gpus(
    fields: dict[str, Any], resources: dict[str, Any], isolation: str
) -> None:
    assert SweepSpec(**fields, resources=resources).effective_isolation == isolation
    assert SweepSpec(**fields, resources=resources, isolation="actor").effective_isolation == "actor"


def test_deadlines_are_moments(refusal: Callable[..., str], fields: dict[str, Any]) -> None:
    assert refusal(stop={"deadline": "2026-11-21T06:00:00"}) == (
        "stop.deadline: 2026-11-21T06:00:00 has no offset from UTC; "
        'write "2026-11-21T06:00:00+00:00", or with your offset'
    )
    assert "has no offset" in refusal(stop={"deadline": datetime(2026, 11, 21)})  # noqa: DTZ001
    assert "expected a date and time, got 1700000000" in refusal(stop={"deadline": 1700000000})
    assert "not a date and time" in refusal(stop={"deadline": "tomorrow"})
    moment = datetime(2026, 11, 21, 6, tzinfo=timezone(timedelta(hours=1)))
    specs = [
        SweepSpec(**fields, stop={"deadline": given})
        for given in (moment, "2026-11-21T06:00:00+01:00", "2026-11-21T05:00:00Z")
    ]
    assert specs[0] == specs[1] == specs[2]
    assert specs[0].stop.deadline == datetime(2026, 11, 21, 5, tzinfo=UTC)
    assert specs[0].to_dict()["stop"]["deadline"] == "2026-11-21T05:00:00Z"


def test_durations_may_be_timedeltas(fields: dict[str, Any]) -> None:
    stop = SweepSpec(**fields, stop={"time_budget_s": timedelta(minutes=2), "grace_s": timedelta(0)}).stop
    assert (stop.time_budget_s, stop.grace_s) == (120.0, 0.0)


def test_storage_paths_have_one_spelling(fields: dict[str, Any]) -> None:
    for given, stored in [
        ("s3://b/p/", "s3://b/p"),
        ("S3://b", "s3://b"),
        ("file:///tmp/x/", "file:///tmp/x"),
        ("file:///", "file:///"),
        ("memory://", "memory://"),
        (Path("/tmp/x"), "/tmp/x"),
        ("/", "/"),
        ("./a:b", "./a:b"),
    ]:
        assert SweepSpec(**fields, storage_path=given).storage_path == stored


def test_digest_covers_everything_but_tags_and_storage_path(spec: SweepSpec) -> None:
    assert spec.replace(tags={"who": "me"}).digest() == spec.digest()
    assert spec.replace(storage_path="s3://elsewhere/x").digest() == spec.digest()
    assert spec.replace(share={"weight": 2}).digest() == spec.digest()
    spec = spec.replace(max_concurrent_trials=7)  # which `autoscaled` needs
    changed = {
        "name": "other",
        "trainable": "m:f",
        "command": ["train.sh", "{args}"],
        "param_space": {"lr": 1},
        "metric": "loss",
        "mode": "min",
        "others": {"size": "min"},
        "constraints": ["latency_ms <= 20"],
        "num_samples": 2,
        "seed": 1,
        "resources": {"cpu": 2},
        "repeat": 5,
        "scaling": {"num_workers": 2},
        "isolation": "actor",
        "evaluate": "judges:judge",
        "search": "tpe",
        "points": [{next(iter(spec.param_space)): 1}],
        "where": [f"{next(iter(spec.param_space))} < 9"],
        "scheduler": "asha",
        "score": "best",
        "max_concurrent_trials": 3,
        "autoscaled": True,
        "failure": {"max_failures": 0},
        "checkpoint": {"keep_last": 2},
        "stop": {"target": 1},
        "warm_start": "last",
        "tune": {"checkpoint_frequency": 2},
        "scale": {"rows": 10},
        "scales": [{"rows": 10}],
    }
    outside = {"tags", "callbacks", "share", "storage_path"}
    assert set(changed) | {"program"} | outside == set(SweepSpec.model_fields)
    digests = {spec.replace(**{field: value}).digest() for field, value in changed.items()}
    program = {"command": changed["command"], "program": {"arguments": "hydra"}}
    digests.add(spec.replace(**program).digest())
    assert len(digests) == len(changed) + 1
    assert spec.digest() not in digests
    assert len(spec.digest()) == 32


def test_options_of_checkpoints_change_the_digest(spec: SweepSpec) -> None:
    assert spec.replace(checkpoint={"upload": "block"}).digest() == spec.digest()
    for options in (
        {"upload": "latest"}, {"upload_limit": "50MiB/s"}, {"on_damage": "fail"},
    ):  # fmt: skip
        other = spec.replace(checkpoint=options)
        assert other.digest() != spec.digest()
        assert SweepSpec.from_json(other.to_json()) == other


@pytest.mark.parametrize(
    ("given", "bytes_per_s"),
    [("50MiB/s", 50 * 2**20), ("1.5 GB/s", 1.5e9), (" 8kB/s ", 8000), ("7B/s", 7), (1000, 1000), (0.5, 0.5)],
)
def test_a_limit_of_uploads_is_a_number_or_has_its_unit(
    given: Any, bytes_per_s: float, spec: SweepSpec
) -> None:
    assert spec.replace(checkpoint={"upload_limit": given}).checkpoint.upload_limit == bytes_per_s


def test_digest_does_not_depend_on_the_order_of_keys(fields: dict[str, Any]) -> None:
    one = SweepSpec(**{**fields, "param_space": {"a": {"uniform": [0, 1]}, "b": 1}})
    two = SweepSpec(**{**fields, "param_space": {"b": 1, "a": {"uniform": [0.0, 1.0]}}})
    assert one.digest() == two.digest()
    assert one.space.leaves == two.space.leaves


def test_replace_validates(spec: SweepSpec) -> None:
    with pytest.raises(SpecError, match="num_samples"):
        spec.replace(num_samples=0)


def test_json_is_plain(spec: SweepSpec) -> None:
    assert json.loads(spec.to_json()) == spec.to_dict()
    # `others` stand in `metric` and `mode`; of `trainable` and `command` the spec has one.
    # `callbacks`, `evaluate`, `share` and scales are written where they are given.
    absent = ("others", "command", "program", "callbacks", "evaluate", "share", "scale", "scales")
    assert list(json.loads(spec.to_json())) == [name for name in SweepSpec.model_fields if name not in absent]


def test_train_spec_refusals() -> None:
    with pytest.raises(SpecError, match=r"^config\.a: \{1\} is a set, which JSON cannot hold"):
        TrainSpec(trainable="m:f", config={"a": {1}})
    with pytest.raises(SpecError, match=r"^scaling\.num_workers: must be >= 1, got 0"):
        TrainSpec(trainable="m:f", scaling={"num_workers": 0})
    with pytest.raises(SpecError, match=r"^framework: 'pytorch' is not known here; did you mean 'torch'\?"):
        TrainSpec(trainable="m:f", framework="pytorch")
    with pytest.raises(SpecError, match=r"^config: expected a mapping, got 3"):
        TrainSpec(trainable="m:f", config=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("limit", "line"),
    [
        ({"above": 1, "below": 2}, "stop.trial.a: below 2 and above 1 leave no value inside"),
        ({}, "stop.trial.a: requires above or below"),
        ({"abov": 1}, "stop.trial.a.abov: unknown field 'abov'"),
    ],
)
def test_a_limit_that_is_wrong_as_a_whole_is_named_by_its_field(limit: Any, line: str) -> None:
    with pytest.raises(SpecError) as caught:
        SweepSpec.model_validate(
            {"name": "s", "trainable": "m:f", "param_space": {"x": {"uniform": [0, 1]}}}
            | {"metric": "loss", "mode": "min", "stop": {"trial": {"a": limit}}}
        )
    assert str(caught.value).startswith(line)
