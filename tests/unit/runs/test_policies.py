"""Schedulers and searchers that are named by import path: loaded by who runs a sweep, refused in one line."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raysweep.core import SweepState
from raysweep.errors import SpecChangedError, SpecError
from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership.sweep_claim import SweepRequest, hold
from raysweep.runs.policies import load_policies
from raysweep.schedulers import make_scheduler
from raysweep.schedulers.plugin import PLUGINS
from raysweep.search import make_searcher
from raysweep.simulate import Kill, simulate
from raysweep.specs import SweepSpec
from raysweep.storage.objects.opening import open_store
from tests.unit import plugins

HERE = "tests.unit.plugins"
FIELDS: dict[str, Any] = {
    "name": "s",
    "trainable": "not:run",
    "param_space": {"x": {"uniform": [0, 1]}},
    "metric": "loss",
    "mode": "min",
    "num_samples": 6,
    "seed": 3,
}


def make(**fields: Any) -> SweepSpec:
    return SweepSpec.from_any(FIELDS | fields)


def curve(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
    return {"loss": config["x"] / iteration} if iteration <= 4 else None


def test_every_way_to_name_a_class_is_the_same_spec() -> None:
    path = f"{HERE}:StopsOdd"
    ways: list[Any] = [
        plugins.StopsOdd,
        path,
        {path: {}},
        {path: None},
        {plugins.StopsOdd: {}},
        {"kind": path, "options": {}},
    ]
    specs = [make(scheduler=way) for way in ways]
    assert all(spec == specs[0] for spec in specs)
    assert len({spec.digest() for spec in specs}) == 1
    assert specs[0].to_dict()["scheduler"] == {path: {}}
    assert SweepSpec.from_yaml(specs[0].to_yaml()) == specs[0]
    other = make(scheduler={path: {"at": 3, "deep": {"list": [1, None]}}})
    assert other.digest() != specs[0].digest()
    assert SweepSpec.from_json(other.to_json()) == other


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            "Mine",
            "scheduler: 'Mine' is not known here; use one of 'fifo', 'asha', 'pasha', ",
        ),
        ("policies.py:Mine", 'file\'s path, not an import path; write "policies:Mine"'),
        ("a b:Mine", 'is not an import path; write "package.module:Class"'),
        ({"m:Mine": {"x": object()}}, "scheduler.m:Mine.x: "),
        ({"m:Mine": [1]}, "scheduler.m:Mine: expected a mapping of options"),
        (type("Here", (), {}), "the class 'Here' has no import path, by which a resume could find it"),
    ],
)
def test_a_name_that_can_be_none_is_refused_by_the_spec(given: Any, problem: str) -> None:
    with pytest.raises(SpecError) as caught:
        make(scheduler=given)
    assert problem in str(caught.value)


def test_a_spec_imports_nothing() -> None:
    """Nor do its schema, its digest, and whoever reads the sweep."""
    fields = FIELDS | {"scheduler": f"{HERE}:StopsOdd", "search": f"{HERE}:Draws"}
    program = (
        "import sys; from raysweep.specs import SweepSpec; from raysweep.core import SweepState;"
        f"spec = SweepSpec.from_any({fields!r});"
        "spec.digest(); spec.json_schema()\n"
        "try: SweepState.create(spec, 1)\n"
        "except ValueError as error: print(error)\n"
        f"assert {HERE!r} not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"scheduler: '{HERE}:StopsOdd' is imported only where the sweep runs")


@pytest.mark.parametrize(
    ("field", "given", "problem"),
    [
        ("scheduler", "no_such_module:Mine", "scheduler: no module 'no_such_module'"),
        ("scheduler", f"{HERE}:StopsOd", "did you mean 'StopsOdd'?"),
        ("scheduler", f"{HERE}:function", "is a function, not a class"),
        ("scheduler", f"{HERE}:not_a_class", "is a int, which cannot be called"),
        ("scheduler", f"{HERE}:LooksLikeOne", "is not a subclass of raysweep.schedulers.Scheduler"),
        ("scheduler", f"{HERE}:Draws", "is not a subclass of raysweep.schedulers.Scheduler"),
        ("scheduler", f"{HERE}:Temporary", "sets resumable = False"),
        ("scheduler", f"{HERE}:Timeless", "time_attr of 'tests.unit.plugins:Timeless' gave ''"),
        ("scheduler", f"{HERE}:Mover", "not a set of some of ['exploit', 'pause', 'stop']"),
        (
            "scheduler",
            {f"{HERE}:StopsOdd": {"att": 3}},
            "StopsOdd.att: unknown field 'att'; did you mean 'at'?",
        ),
        (
            "scheduler",
            {f"{HERE}:StopsOdd": {"at": 0}},
            "scheduler.tests.unit.plugins:StopsOdd.at: must be >= 1",
        ),
        (
            "scheduler",
            {f"{HERE}:StopsOdd": {"does": "raises at once"}},
            "failed in __init__: RuntimeError: no",
        ),
        ("scheduler", {f"{HERE}:StopsOdd": {"does": "keeps a set"}}, "to_json of"),
        (
            "search",
            f"{HERE}:StopsOdd",
            "'tests.unit.plugins:StopsOdd' is not a subclass of raysweep.search.Searcher",
        ),
        (
            "search",
            f"{HERE}:Undecided",
            "is_adaptive of 'tests.unit.plugins:Undecided' gave None, not True or",
        ),
        ("search", {f"{HERE}:Draws": {"at": "two"}}, "search.tests.unit.plugins:Draws.at"),
    ],
)
def test_a_class_that_cannot_be_used_is_refused_before_anything_starts(
    field: str, given: Any, problem: str
) -> None:
    with pytest.raises(SpecError) as caught:
        load_policies(make(**{field: given}))
    assert problem in str(caught.value)
    assert str(caught.value).startswith(field)


def test_a_policy_is_made_from_its_options_and_the_sweep() -> None:
    spec = make(scheduler={plugins.StopsOdd: {"at": 5}}, search=plugins.Draws)
    load_policies(spec)
    scheduler, searcher = make_scheduler(spec, 11), make_searcher(spec, 11)
    made, drawn = scheduler._inner, searcher._inner  # type: ignore[attr-defined]
    assert (made.options.at, made.setup.mode, made.setup.seed) == (5, "min", 11)
    assert made.setup.space.sample is not None
    assert (drawn.setup.num_samples, drawn.setup.seed, searcher.total) == (6, 11, 6)


@pytest.mark.parametrize("total", ["", "no total"])
@pytest.mark.parametrize("concurrent", [1, 3])
def test_a_sweep_under_them_is_killed_and_resumed_exactly(total: str, concurrent: int) -> None:
    spec = make(
        scheduler={plugins.StopsOdd: {"at": 3}},
        search={plugins.Draws: {"does": total}},
        max_concurrent_trials=concurrent,
    )
    whole = simulate(spec, curve, slots=3, is_checked=True)
    assert whole.outcome.counts == {"completed": 3, "stopped": 3}
    kills = [Kill(when="before", append=number) for number in (2, 3, 5)]
    killed = simulate(spec, curve, slots=3, is_checked=True, kills=kills, has_snapshots=True)
    assert killed.outcome.generation > 1
    shown = [[(t.config, t.state, t.metrics) for t in each.outcome.trials] for each in (whole, killed)]
    assert shown[0] == shown[1]
    if concurrent == 3:
        began = sorted(moment.at for moment in whole.timeline if moment.what == "opened")
        assert len(began) == 3, "each slot has work from the start"


@pytest.mark.parametrize(
    ("does", "problem"),
    [
        ("raises", "'tests.unit.plugins:StopsOdd' failed in report: ZeroDivisionError: division by zero"),
        ("nothing", "gave None, not a sequence of (trial, verdict), or NOTHING"),
        ("word", "gave (0, 'stop'), not (trial, verdict)"),
        ("pair", "gave Stop(), not (trial, verdict)"),
        ("pauses", "gave Pause(), not one of its moves, ['exploit', 'stop']"),
        ("sets", "not a config of plain JSON"),
    ],
)
def test_what_a_scheduler_does_wrong_names_it(does: str, problem: str) -> None:
    with pytest.raises(SpecError) as caught:
        simulate(make(scheduler={plugins.StopsOdd: {"does": does}}), curve)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("does", "error"), [("raises", "RuntimeError"), ("set", "SpecError"), ("list", "SpecError")]
)
def test_what_a_searcher_cannot_make_is_that_trials_failure(does: str, error: str) -> None:
    outcome = simulate(
        make(search={plugins.Draws: {"does": does, "at": 4}}, failure={"breaker_trials": 0}), curve
    ).outcome
    failed = [trial for trial in outcome.trials if trial.state == "failed"]
    assert [trial.number for trial in failed] == ([4, 5] if does == "raises" else list(range(6)))
    assert {trial.error.type for trial in failed if trial.error} == {error}


def test_what_a_searcher_raises_when_told_ends_the_sweep_and_names_it() -> None:
    with pytest.raises(SpecError, match=r"search: .*Draws' failed in tell: RuntimeError: no luck"):
        simulate(make(search={plugins.Draws: {"does": "raises when told"}}), curve)


def test_another_class_than_before_is_a_changed_spec(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where the one of before cannot be imported any more."""
    folder = SweepFolder(open_store(tmp_path), "s-1")
    asked = SweepRequest(spec=make(scheduler=plugins.StopsOdd), key="k", seed=1)
    load_policies(asked.spec)
    assert hold(folder, asked) is not None
    monkeypatch.setattr(PLUGINS, "_loaded", {})
    with pytest.raises(SpecChangedError, match=r"scheduler: .*StopsOdd"):
        hold(folder, replace(asked, spec=make()))
    with pytest.raises(SpecError, match="is imported only"):
        hold(folder, asked)
    load_policies(asked.spec)
    held = hold(folder, asked)
    assert held is not None
    assert held.claim.generation == 2


def test_a_snapshot_of_another_class_is_not_used() -> None:
    spec = make(scheduler=plugins.StopsOdd)
    load_policies(spec)
    state = SweepState.create(spec, 1)
    plain = state.to_json()
    assert plain["scheduler"] == {"reports": 0}
    assert SweepState.from_json(plain).to_json() == plain
    with pytest.raises(Exception, match="failed in from_json: KeyError"):
        SweepState.from_json(plain | {"scheduler": {}})
