"""Each spec under `examples/search` runs as it stands, and finds what its function has to be found."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from raysweep.documents.code.trainable import load_function
from raysweep.documents.json_values import leaves
from raysweep.outcome import SweepOutcome
from raysweep.search.spec import SearchSpec
from raysweep.simulate import simulate
from raysweep.specs import SweepSpec, sweep_id
from raysweep.specs.sweep_parts import Memory
from tests.sampling import sampled

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples/search").glob("*.yaml"))
# What a search is to find at least; the minima are 0.398 and 0.1.
FINDS = {
    "branches": 0.25,
    "auto": 0.5,
    "gp": 0.6,
    "cma_es": 1.0,
    "cma_es_warm": 1.0,
    "random": 0.2,
}
REPEATED = {"grid": 18, "configs": 9}
NIGHTS = 2


def read(path: Path) -> SweepSpec:
    return SweepSpec.from_file(path)


def test_each_named_search_has_an_example() -> None:
    kinds = {read(path).search.kind for path in EXAMPLES}
    elsewhere = {"bohb"}
    assert kinds == (set(SearchSpec.kinds) - elsewhere) | {"ray.tune.search.optuna:OptunaSearch"}
    assert any(read(path).points for path in EXAMPLES)
    assert {read(path).search.kind for path in EXAMPLES if read(path).constraints} == {"tpe", "nsga2"}
    assert any(read(path).is_open_ended for path in EXAMPLES)
    assert any(read(path).space.switches for path in EXAMPLES)
    several = {read(path).search.kind: len(read(path).objectives) for path in EXAMPLES if read(path).others}
    assert several == {"nsga3": 4, "tpe": 2}
    assert {read(path).search.kind for path in EXAMPLES if read(path).search.options.costs_by} == {
        "gp",
        "auto",
    }
    assert {read(path).search.kind for path in EXAMPLES if read(path).warm_start} == {"tpe", "cma_es"}


@pytest.mark.parametrize(
    "path", sampled(EXAMPLES, lambda path: path.stem != "costs"), ids=lambda path: path.stem
)
def test_an_example_runs_to_its_end(path: Path) -> None:
    spec = read(path)
    assert f"raysweep sweep examples/search/{path.name}" in path.read_text()
    function = load_function(str(spec.trainable), "trainable")

    def curve(config: Mapping[str, Any], step: int) -> Mapping[str, Any] | None:
        return function(config) if step < 2 else None

    earlier: list[SweepOutcome] = []
    for night in range(NIGHTS if spec.warm_start else 0):
        ended = simulate(spec, curve, earlier=earlier).outcome
        earlier.append(ended.model_copy(update={"sweep_id": sweep_id(spec.name, f"n{night}")}))
    outcome = simulate(spec, curve, earlier=earlier).outcome
    assert outcome.status == ("plateau" if spec.is_open_ended else "completed")
    assert not [note for note in outcome.notes if "uses TPE" in note]
    wanted = REPEATED.get(path.stem, spec.num_samples)
    if spec.warm_start:
        cold, warm = (median(trial.score for trial in each.trials) for each in (earlier[0], outcome))
        assert warm < 0.9 * cold, "it begins where the earlier runs had ended"
        assert any(note.startswith("memory: ") for note in outcome.notes) == isinstance(
            spec.warm_start, Memory
        )
    assert wanted is None or outcome.counts.get("completed", 0) == wanted
    assert outcome.best.score is not None
    assert outcome.best.score < FINDS.get(path.stem, 0.15)
    assert outcome.pareto[0] == outcome.best
    assert len(outcome.pareto) > 5 if spec.others else len(outcome.pareto) == 1
    if spec.constraints:
        assert outcome.best.metrics["latency_ms"] <= 20 < max(t.metrics["latency_ms"] for t in outcome.trials)
    for number, point in enumerate(spec.points):
        config = dict(leaves(outcome.trials[number].config))
        assert {name: config[name] for name, _ in leaves(point)} == dict(leaves(point))
