"""A plan's token: `raysweep sweep --plan` runs just what `raysweep plan` has shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import PlanChangedError, SpecError
from raysweep.specs import RunRequest, SweepSpec
from raysweep.specs.plan_token import PARTS, check_token, make_token

Cli = Callable[..., Any]
CODE = "import raysweep as rs\n\n\ndef f(config):\n    rs.report({{'loss': {gain} * config['x']}})\n"


@pytest.fixture
def fields(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "planned_trainable.py").write_text(CODE.format(gain=1))
    return {
        "name": "planned",
        "trainable": "planned_trainable:f",
        "param_space": {"x": {"uniform": [0, 1]}},
        "metric": "loss",
        "mode": "min",
        "num_samples": 2,
        "isolation": "inline",
        "max_concurrent_trials": 1,
        "stop": {"cost_per_hour": {"cpu": 1}},
        "storage_path": str(tmp_path / "store"),
    }


@pytest.fixture
def request_of(
    fields: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., RunRequest[SweepSpec]]:
    monkeypatch.syspath_prepend(str(tmp_path))
    return lambda key="k", **changes: RunRequest.of(SweepSpec.from_any(fields | changes), key)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"num_samples": 3}, ("spec",)),
        ({"tags": {"by": "me"}}, ("spec",)),
        ({"callbacks": [{"webhook": {"url": "https://elsewhere.example"}}]}, ("spec",)),
        ({"resources": {"cpu": 2}}, ("spec",)),
        ({"stop": {"cost_per_hour": {"cpu": 2}}}, ("price",)),
        ({"stop": {"cost_per_hour": {"cpu": 1}, "time_budget_s": 9}}, ("spec",)),
        ({"key": "another"}, ("name or key",)),
        ({"name": "renamed"}, ("name or key", "spec")),
    ],
)
def test_what_differs_is_named(
    request_of: Callable[..., RunRequest[SweepSpec]], changes: dict[str, Any], named: tuple[str, ...]
) -> None:
    token = make_token(request_of())
    check_token(token, request_of())
    with pytest.raises(PlanChangedError) as refused:
        check_token(token, request_of(**changes))
    assert refused.value.differing == named
    assert f"another {', another '.join(named)}" in str(refused.value)


def test_so_are_code_and_storage(
    request_of: Callable[..., RunRequest[SweepSpec]], fields: dict[str, Any], tmp_path: Path
) -> None:
    token = make_token(request_of())
    with pytest.raises(PlanChangedError) as refused:
        check_token(token, request_of(storage_path=str(tmp_path / "other")))
    assert refused.value.differing == ("storage path",)
    (tmp_path / "planned_trainable.py").write_text(CODE.format(gain=1) + "\n\n# a note\n")
    check_token(token, request_of())
    (tmp_path / "planned_trainable.py").write_text(CODE.format(gain=27))
    with pytest.raises(PlanChangedError) as refused:
        check_token(token, request_of())
    assert refused.value.differing == ("code",)


@pytest.mark.parametrize(
    "text",
    [
        "", "plan1", "plan1.a.b", "plan0.1.2.3.4.5", "x.1.2.3.4.5", "plan1.1.2.3.4.5.6",
        *(f"plan1.{run}{'.0123456789' * 4}" for run in ("", "/etc/passwd", "a\nb", "a/../b", "x" * 60)),
        "plan1.planned-0123456789.0123456789.0123456789.0123456789.012345678G",
        "p" * 300_000,
    ],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_what_is_no_token_is_refused(request_of: Callable[..., RunRequest[SweepSpec]], text: str) -> None:
    with pytest.raises(SpecError, match="is not a token") as refused:
        check_token(text, request_of())
    assert len(str(refused.value)) < 200
    assert len(make_token(request_of()).split(".")) == len(PARTS) + 1


def test_sweep_runs_just_what_was_planned(cli: Cli, fields: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("ray")
    spec = tmp_path / "planned.json"
    spec.write_text(json.dumps(fields))
    token = json.loads(cli("plan", spec, "--key", "k", "--json").out)["token"]
    spec.write_text(json.dumps(fields | {"num_samples": 200}))
    refused = cli("sweep", spec, "--key", "k", "--plan", token, "--json")
    assert refused.code == 2
    assert json.loads(refused.out)["error"]["code"] == "plan_changed"
    assert "another spec; look at raysweep plan again" in refused.err
    assert not (tmp_path / "store").exists(), "nothing has run"
    spec.write_text(json.dumps(fields))
    ran = cli("sweep", spec, "--key", "k", "--plan", token, "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["status"] == "completed"
