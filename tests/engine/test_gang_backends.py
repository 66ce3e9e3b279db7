"""Gangs through TensorFlow and Horovod: `make test-tensorflow` and `make test-horovod` run this.

Each has an environment of its own; elsewhere the tests say why they are skipped.
"""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.core.vocabulary import events as ev
from tests.engine.conftest import ROOT

BACKENDS = "tests.engine.gang_backends"
Run = Callable[..., rs.SweepOutcome]
Lines = Callable[[], list[list[str]]]


def skipped_without(package: str) -> pytest.MarkDecorator:
    """Where the package is absent the test is skipped, and says what installs it."""
    why = (
        f"{package} is not installed here: `make test-{package}` builds an environment with it, and runs this"
    )
    return pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=why)


def needing(package: str) -> Any:
    """A case that is skipped where the package is absent."""
    return pytest.param(package, marks=skipped_without(package))


pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
of_each = pytest.mark.parametrize("backend", [needing("tensorflow"), needing("horovod")])


def scaling(backend: str, **fields: Any) -> dict[str, Any]:
    return {"num_workers": 2, "backend": backend, **fields}


def begun(lines: list[list[str]]) -> list[tuple[str, ...]]:
    """Trial, attempt, rank and where each began."""
    return sorted(tuple(words[1:5]) for words in lines if words[0] == "begin")


@of_each
def test_two_trials_of_two_ranks_add_up_and_each_attempt_has_addresses_of_its_own(
    run: Run, lines: Lines, backend: str
) -> None:
    outcome = run(f"{BACKENDS}:{backend}", num_samples=2, scaling=scaling(backend))
    assert outcome.counts == {"completed": 2}
    assert [(trial.metrics["total"], trial.metrics["step"]) for trial in outcome.trials] == [(11.0, 4)] * 2
    said = [words for words in lines() if words[0] == "begin"]
    assert begun(said) == [(str(trial), "1", str(rank), "0") for trial in range(2) for rank in range(2)]
    addresses = defaultdict(set)
    for words in said:
        addresses[words[1]].add(words[6])
    assert all(len(found) == 1 for found in addresses.values()), "both ranks have the same"
    assert not addresses["0"] & addresses["1"]
    processes = {words[5] for words in said}
    assert len(processes) == (4 if backend == "tensorflow" else 2), "Horovod's are kept, TensorFlow's are not"


@of_each
@pytest.mark.parametrize("hurt", ["dies", "never comes"])
def test_a_rank_that_is_killed_leaves_none_waiting_and_the_gang_resumes(
    run: Run, lines: Lines, backend: str, hurt: str
) -> None:
    """Also before the ranks have met, where the other waits in C++ for as long as its library likes."""
    outcome = run(f"{BACKENDS}:{backend}", {"hurt": hurt}, scaling=scaling(backend))
    assert outcome.counts == {"completed": 1}
    again = [words for words in begun(lines()) if words[1] == "2"]
    begin = "2" if hurt == "dies" else "0"
    assert again == [("0", "2", str(rank), begin) for rank in range(2)]


@of_each
def test_a_rank_that_raises_ends_the_others_and_its_error_is_the_trials(
    run: Run, events: Callable[..., list[Any]], backend: str
) -> None:
    outcome = run(
        f"{BACKENDS}:{backend}", {"hurt": "raises"}, scaling=scaling(backend), failure={"max_failures": 1}
    )
    assert outcome.counts == {"completed": 1}
    (failed,) = events(ev.TrialFailed)
    assert (failed.failure.type, failed.failure.message) == ("ValueError", "rank 1: boom")


@of_each
def test_the_example_trains_one_model_in_all_ranks(run: Run, storage: Path, backend: str) -> None:
    spec = rs.SweepSpec.from_file(ROOT / "examples" / f"gang_{backend}.yaml")
    fields = spec.to_dict()
    outcome = run(
        fields["trainable"],
        fields["param_space"],
        num_samples=fields["num_samples"],
        scaling={**fields["scaling"], "metrics": {"loss": "mean", "weight": "each"}},
    )
    assert outcome.counts == {"completed": 2}
    for trial in outcome.trials:
        assert trial.metrics["weight"] == trial.metrics["weight/rank1"]
