"""Options that a spec leaves open: sweeps of before keep what they began with, ids and digests stay."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.errors import SpecChangedError
from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership.reopening import check_same
from raysweep.runs.ownership.sweep_claim import SweepRequest, hold
from raysweep.simulate import simulate
from raysweep.specs import SweepSpec
from raysweep.specs.identity import RunId
from raysweep.storage.objects.opening import open_store

FIELDS: dict[str, Any] = {
    "name": "flights",
    "trainable": "m:f",
    "param_space": {"x": {"uniform": [0, 1]}},
    "metric": "loss",
    "mode": "min",
    "num_samples": 20,
}
ALONE: dict[str, Any] = {"tpe": {"multivariate": False}}
JOINT: dict[str, Any] = {"tpe": {"multivariate": True}}


def spec_of(search: Any, **fields: Any) -> SweepSpec:
    return SweepSpec.from_any(FIELDS | {"search": search} | fields)


def curve(config: Any, step: int) -> dict[str, Any] | None:
    return {"loss": (config["x"] - config["y"]) ** 2} if step < 3 else None


SIMULATED: dict[str, Any] = {
    "param_space": {"x": {"uniform": [0, 1]}, "y": {"uniform": [0, 1]}},
    "seed": 3,
    "max_concurrent_trials": 1,
}


def configs_of(search: Any, samples: int, reopened: tuple[SweepSpec, ...] = (), **options: Any) -> list[Any]:
    simulated = simulate(
        spec_of(search, **SIMULATED, num_samples=samples), curve, reopened=list(reopened), **options
    )
    return [trial.config for trial in simulated.outcome.trials]


def stored(search: Any) -> SweepFolder:
    request = SweepRequest(spec=spec_of(search), key="k", seed=3)
    folder = SweepFolder(open_store("memory://open-options"), RunId.of(request.spec, str(search)).id)
    held = hold(folder, request)
    assert held is not None
    return folder


@pytest.mark.parametrize(
    ("began", "asked", "line"),
    [
        ("tpe", ALONE, r"search\.tpe\.multivariate: true -> false"),
        (ALONE, JOINT, r"search\.tpe\.multivariate: false -> true"),
        (JOINT, ALONE, r"search\.tpe\.multivariate: true -> false"),
    ],
)
def test_another_option_is_another_search(began: Any, asked: Any, line: str) -> None:
    """Also where both have the same digest."""
    folder = stored(began)
    with pytest.raises(SpecChangedError, match=line):
        hold(folder, SweepRequest(spec=spec_of(asked), key="k", seed=3))
    with pytest.raises(SpecChangedError, match=line):
        check_same(folder, spec_of(asked), None)
