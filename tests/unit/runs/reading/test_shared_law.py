"""The law of a stored sweep, which shares it with the nights that it began with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raysweep.outcome import SweepOutcome
from raysweep.runs.reading.law import law_of
from raysweep.simulate import simulate
from raysweep.specs import SweepSpec
from raysweep.storage.objects.opening import open_store
from tests.unit.pages.sweeps import SPEC
from tests.unit.training.drifting import SPACE, SWEEP, drifting

FEW: dict[str, Any] = {**SPEC, **SWEEP, "num_samples": 12}


def nights(root: Path, *earlier: dict[str, Any], **tonight: Any) -> SweepOutcome:
    """Tonight's outcome, after others of its name."""
    ended = []
    for number, changes in enumerate(earlier):
        found = simulate(FEW | {"seed": 10 + number} | changes, drifting, slots=3).outcome
        ended.append(found.model_copy(update={"sweep_id": f"flights-{number:010x}"}))
    return simulate(FEW | tonight, drifting, slots=3, earlier=ended, keep_at=str(root)).outcome


def test_the_law_is_that_of_the_nights_the_sweep_began_with(tmp_path: Path) -> None:
    asked = {"warm_start": 2}
    outcome = nights(tmp_path, {}, {}, {}, **asked)
    law = law_of(SweepSpec.from_any(FEW | asked), outcome)
    assert law.nights == 2, "the newest two of three"
    assert {run.night for run in law._table.runs} == {0, 1, 2}
    assert law.at({"rows": 64000}).verdict == "carries"
    open_store(tmp_path).delete("flights-0000000001/outcome.json")
    assert law_of(SweepSpec.from_any(FEW | asked), outcome).nights == 1, "one was removed"
    (tmp_path / "flights-0000000002" / "outcome.json").write_bytes(b"no")
    assert law_of(SweepSpec.from_any(FEW | asked), outcome).nights == 0, "the other cannot be read"


def test_without_warm_start_a_night_has_a_law_of_its_own(tmp_path: Path) -> None:
    law = law_of(SweepSpec.from_any(FEW), nights(tmp_path, {}, {}))
    assert law.nights == 0
    assert law.at({"rows": 64000}).verdict != "carries"


@pytest.mark.parametrize(
    "earlier",
    [
        {"param_space": SPACE | {"lr": {"loguniform": [2.0, 9.0]}}},
        {"param_space": {name: SPACE[name] for name in ("lr", "rounds")} | {"act": {"const": "tanh"}}},
        {"scales": [{"rows": 1000, "depth": 1}, {"rows": 4000, "depth": 1}]},
        {"scales": ()} | {"param_space": SPACE | {"rows": {"const": 1000}}},
    ],
)
def test_what_has_another_space_or_other_scales_is_left_out(tmp_path: Path, earlier: dict[str, Any]) -> None:
    asked = {"warm_start": 1}
    outcome = nights(tmp_path, earlier, **asked)
    assert law_of(SweepSpec.from_any(FEW | asked), outcome).nights == 0
