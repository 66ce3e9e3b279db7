"""Options that a spec leaves open: sweeps of before keep what they began with, ids and digests stay."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.errors import SpecChangedError
from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership.reopening import check_same
from raysweep.runs.ownership.sweep_claim import SweepRequest, hold
from raysweep.simulate import Kill, simulate
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


@pytest.mark.parametrize(
    ("search", "digest", "run_id"),
    [
        ("tpe", "ce5651146cafd994560869743430f9e8", "flights-1322be89b9"),
        ("random", "ff1ea036bbc0c05bdc494f3f86445402", "flights-10e40dca60"),
        (JOINT, "125af368e2a73d41d1e411e46b9f1d5b", "flights-f228c2c71d"),
        ({"tpe": {"n_startup_trials": 8}}, "492da10f425e02fe97c30c36ce63bf81", "flights-8a0db87f89"),
    ],
)
def test_specs_have_the_digests_and_ids_that_they_had_before(search: Any, digest: str, run_id: str) -> None:
    """As version 0.1 computed them, when `multivariate` was false by default."""
    spec = spec_of(search)
    assert spec.digest() == digest
    assert RunId.of(spec, None).id == run_id


def test_what_is_left_open_stays_open_when_written() -> None:
    assert spec_of("tpe").to_dict()["search"]["tpe"]["multivariate"] is None
    for search in ("tpe", ALONE, JOINT):
        assert SweepSpec.from_json(spec_of(search).to_json()) == spec_of(search)


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


def test_a_sweep_of_before_goes_on_as_it_was() -> None:
    """What earlier versions stored says `multivariate: false`; it is asked for by the same words as then."""
    more = spec_of("tpe", **SIMULATED, num_samples=24)
    alone, joint = configs_of(ALONE, 24), configs_of(JOINT, 24)
    assert alone != joint
    assert configs_of(ALONE, 16, (more,)) == alone
    assert configs_of("tpe", 16, (more,)) == joint
    # And after that spec was recorded as a change, and another controller replays it.
    once_more = spec_of("tpe", **SIMULATED, num_samples=28)
    assert configs_of(ALONE, 16, (more, once_more)) == configs_of(ALONE, 28)
    killed = configs_of(ALONE, 16, (more,), kills=[Kill(when="after", append=60)])
    assert killed == alone


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


@pytest.mark.parametrize("began", ["tpe", ALONE, JOINT])
def test_what_is_left_open_is_no_difference(began: Any) -> None:
    folder = stored(began)
    asked = SweepRequest(spec=spec_of("tpe"), key="k", seed=3)
    held = hold(folder, asked)
    assert held is not None
    options: Any = held.asked.spec.search.options
    assert options.is_multivariate == (began != ALONE)
    assert not check_same(folder, asked.spec, None)
