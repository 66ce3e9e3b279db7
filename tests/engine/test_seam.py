"""Between core and shell: workers replaced, groups given back, work never deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.core.vocabulary.events import SlotFailed, SlotOpened, TrialStarted
from raysweep.errors import MetricNeverReportedError, TrainableImportError
from raysweep.outcome import SweepProgress
from tests.engine.conftest import INLINE
from tests.engine.seam import LoadsOnce
from tests.sampling import first_of

pytestmark = [pytest.mark.ray, pytest.mark.faults]
Run = Callable[..., rs.SweepOutcome]
Events = Callable[..., list[Any]]
Lines = Callable[[], list[list[str]]]
HERE = "tests.engine.seam"
ASHA = {"asha": {"max_t": 3, "grace_period": 3}}


def test_a_trial_that_returns_at_its_last_time_costs_no_other_its_worker(
    run: Run, lines: Lines, events: Events
) -> None:
    """It reports max_t and returns in the same frame; whatever runs in its worker later is left alone."""
    outcome = run(
        f"{HERE}:short_then_long",
        {"long_s": 2.0},
        num_samples=2,
        scheduler=ASHA,
        max_concurrent_trials=1,
        stop={"grace_s": 0.2},
    )
    assert outcome.counts == {"completed": 2}
    assert Counter(line[1] for line in lines() if line[0] == "start") == {"0": 1, "1": 1}
    assert len(events(TrialStarted)) == 2
    assert len(events(SlotOpened)) == 1


@pytest.mark.parametrize("isolation", first_of(["worker", "actor"]))
def test_a_replacement_that_cannot_load_the_trainable_leaves_the_sweep_resumable(
    isolation: str, run: Run, lines: Lines, events: Events, tmp_path: Path
) -> None:
    """Its slot is open: the first worker could load what the second one cannot."""
    marker = tmp_path / "loaded"
    trainable = LoadsOnce(marker, is_stubborn=isolation == "worker")
    fields: dict[str, Any] = {
        "num_samples": 3,
        "isolation": isolation,
        "max_concurrent_trials": 1,
        "scheduler": ASHA,
        "stop": {"grace_s": 0.1},
    }
    with pytest.raises(TrainableImportError, match="only once"):
        run(trainable, **fields)
    assert events(SlotFailed)
    marker.write_text("again")
    outcome = run(trainable, **fields)
    assert len(outcome) == 3
    assert outcome.generation == 2
    assert Counter(line[1] for line in lines() if line[0] == "done") == {"0": 1, "1": 1, "2": 1}


def test_what_a_sweep_does_not_need_any_more_is_free_while_it_runs(run: Run) -> None:
    """One long trial is left; the other slot's placement group is not kept until the end."""
    free: list[float] = []

    def look(progress: SweepProgress) -> None:
        import ray

        if progress.counts.get("completed") == 1 and progress.slots == 1:
            free.append(ray.available_resources().get("CPU", 0.0))  # type: ignore[no-untyped-call]

    run(f"{HERE}:one_long", {"long_s": 3.0}, num_samples=2, on_progress=look)
    assert free[-1] == 1.0


def test_an_error_of_the_spec_after_the_start_deletes_nothing(
    make_spec: Callable[..., rs.SweepSpec], ray_cluster: object, storage: Path
) -> None:
    """Trials ran and stored checkpoints before it showed that their metric has another name."""
    with pytest.raises(MetricNeverReportedError) as caught:
        rs.run_sweep(make_spec(f"{HERE}:saves", metric="los", **INLINE), key="k")
    kept = Path(caught.value.kept_uri)
    assert kept.is_relative_to(storage / "aside")
    assert (kept / "sweep.json").is_file()
    assert list(kept.glob("checkpoints/00000/*.json"))
    assert rs.run_sweep(make_spec(f"{HERE}:saves", **INLINE), key="k").counts == {"completed": 1}


def test_a_worker_that_ends_for_its_memory_gets_no_other_trial(run: Run, events: Events) -> None:
    outcome = run(
        f"{HERE}:grow_first",
        {"gib": 2},
        num_samples=4,
        max_concurrent_trials=1,
        resources={"cpu": 1, "memory": 2**30},
        failure={"memory_limit_factor": 1.5, "max_worker_deaths": 0},
    )
    assert outcome.counts == {"completed": 3, "failed": 1}
    for trial in outcome.trials[1:]:
        assert [attempt.end for attempt in trial.attempts] == ["completed"], "charged to nobody else"


def test_an_interrupted_trial_does_not_hold_up_others_for_long(run: Run, lines: Lines) -> None:
    """A trial that will not end is killed with its worker; its sibling begins in the next one at once."""
    outcome = run(
        f"{HERE}:stubborn_first",
        num_samples=3,
        max_concurrent_trials=1,
        scheduler=ASHA,
        stop={"grace_s": 0.1},
    )
    assert outcome.counts == {"completed": 3}
    assert Counter(line[1] for line in lines() if line[0] == "start") == {"0": 1, "1": 1, "2": 1}
    began = [float(line[-1]) for line in lines() if line[0] == "start"]
    assert began[1] - began[0] < 10.0
