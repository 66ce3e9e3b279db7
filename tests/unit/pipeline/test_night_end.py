"""The end of a whole night: what it means, and what is not begun because of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.outcome import TrainOutcome, Usage
from raysweep.pipeline import night as night_module
from raysweep.pipeline import prepare_gate, run_pipeline
from raysweep.pipeline.night_end import ending_by, night_end, read_deadline, why_not_begun
from raysweep.runs.training import RunFolder
from raysweep.specs import RunRequest, TrainSpec
from raysweep.specs.pipeline import PipelineSpec
from raysweep.storage.objects.opening import open_store
from tests.begun_trainings import begin_training
from tests.unit.pipeline.gates import GATE, make_spec, stored, swept

ENDS = datetime(2026, 11, 27, 5, 0, tzinfo=UTC)


def request(storage: Path, key: str, name: str = "full") -> RunRequest[TrainSpec]:
    fields = {"name": name, "trainable": "m:f", "storage_path": str(storage)}
    return RunRequest.of(TrainSpec.model_validate(fields), key)


def trained(
    storage: Path, key: str, took_s: float, *, name: str = "full", status: Any = "completed", of: float = 1.0
) -> None:
    """An earlier training that was at work for so long, in two attempts."""
    asked = request(storage, key, name)
    folder = RunFolder(open_store(storage), asked.run.id)
    begin_training(folder, asked.spec, asked.run.key)
    times = {"started_at": of, "ended_at": of + took_s / 2, "usage": Usage(active_s=took_s)}
    folder.write_outcome(TrainOutcome(run_id=asked.run.id, name=name, status=status, **times))


def late(storage: Path, left_s: float, key: str = "tonight") -> str:
    return why_not_begun(request(storage, key), ENDS, now=ENDS.timestamp() - left_s)


def test_a_training_that_would_end_too_late_is_not_begun(tmp_path: Path) -> None:
    for number, took_s in enumerate((1_200.0, 2_400.0, 9_000.0)):
        trained(tmp_path, f"n{number}", took_s)
    said = "training not begun: the last 3 took 40:00 (median), and the night ends in 39:59 (05:00+00:00)"
    assert late(tmp_path, 2_399.0) == said
    assert late(tmp_path, 2_400.0) == ""


def test_only_whole_trainings_of_this_name_say_how_long_it_takes(tmp_path: Path) -> None:
    trained(tmp_path, "n1", 9_000.0, name="other")
    trained(tmp_path, "n2", 9_000.0, status="failed")
    assert late(tmp_path, 60.0) == ""
    trained(tmp_path, "n3", 61.0)
    assert "the one before took 1:01" in late(tmp_path, 60.0)


def test_the_newest_trainings_count(tmp_path: Path) -> None:
    for number in range(5):
        trained(tmp_path, f"new{number}", 60.0, of=1_000.0 + number)
        trained(tmp_path, f"old{number}", 9_000.0, of=1.0 + number)
    assert late(tmp_path, 61.0) == ""


def test_after_its_end_nothing_is_begun_and_what_has_begun_continues(tmp_path: Path) -> None:
    assert late(tmp_path, -1.0) == "training not begun: the night ended at 05:00+00:00"
    asked = request(tmp_path, "tonight")
    begin_training(RunFolder(open_store(tmp_path), asked.run.id), asked.spec, asked.run.key)
    assert late(tmp_path, -1.0) == ""
    assert why_not_begun(request(tmp_path, "n9"), None) == "", "a night without an end"


def test_a_time_of_day_counts_from_the_sweeps_start(tmp_path: Path) -> None:
    began = datetime(2026, 11, 26, 21, 0, tzinfo=UTC)
    outcome = swept("n1", 0.5).model_copy(update={"started_at": began.timestamp()})
    assert night_end("06:00 Europe/Berlin", outcome) == ENDS
    assert night_end(None, outcome) is None
    assert night_end(ENDS, None) == ENDS


def test_the_training_gets_the_nights_end_unless_its_own_is_earlier(tmp_path: Path) -> None:
    spec = request(tmp_path, "n").spec
    began = swept("n1", 0.5).model_copy(update={"started_at": (ENDS - timedelta(hours=8)).timestamp()})
    assert ending_by(spec, ENDS, began).stop.deadline == ENDS
    early, after = ENDS - timedelta(hours=1), ENDS + timedelta(hours=1)
    times: tuple[tuple[Any, datetime], ...] = (
        (early, early),
        (after, ENDS),
        ("05:00 Europe/Berlin", early),
        ("07:00 Europe/Berlin", ENDS),
        ("21:00 UTC", ENDS),  # the sweep began then: it means the next evening
    )
    for own, wanted in times:
        given = spec.replace(stop=spec.stop.replace(deadline=own))
        assert ending_by(given, ENDS, began).stop.deadline == wanted
    assert ending_by(spec, None, began) is spec
    with pytest.raises(SpecError, match="counts from the start of the sweep, and the training has none"):
        ending_by(spec.replace(stop=spec.stop.replace(deadline="05:00 UTC")), ENDS, None)


def test_a_training_whose_own_deadline_has_passed_is_not_begun(tmp_path: Path) -> None:
    asked = request(tmp_path, "tonight")
    own = ENDS - timedelta(hours=1)
    asked = RunRequest.of(asked.spec.replace(stop=asked.spec.stop.replace(deadline=own)), "tonight")
    said = "training not begun: its stop.deadline was 04:00+00:00"
    assert why_not_begun(asked, ENDS, now=own.timestamp()) == said
    assert why_not_begun(asked, ENDS, now=own.timestamp() - 1.0) == ""


def test_the_gate_ends_with_the_night(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    prepared = prepare_gate(spec, stored(spec, swept("n1", 0.5)), GATE, ends_at=ENDS)
    assert prepared.request.spec.stop.deadline == ENDS
    assert prepare_gate(spec, swept("n1", 0.5), GATE).request.spec.stop.deadline is None


@pytest.mark.parametrize(("hours", "begun"), [(-1, False), (1, True)])
def test_a_pipeline_says_that_its_training_was_not_begun(
    hours: int, begun: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[Any] = []
    spec = make_spec(tmp_path)
    given = stored(spec, swept("n1", 0.5))
    monkeypatch.setattr(night_module, "run_sweep", lambda *_, **__: given)
    monkeypatch.setattr(night_module, "train_best", lambda train, *_, **__: steps.append(train.stop.deadline))
    ends = datetime.now(UTC) + timedelta(hours=hours)
    train = {"name": "full", "trainable": "m:f", "storage_path": str(tmp_path)}
    pipeline = {"sweep": spec.to_dict(), "train": train, "deadline": ends.isoformat()}
    night = run_pipeline(pipeline, key="n1")
    assert steps == ([ends] if begun else [])
    assert night.skipped.startswith("" if begun else "training not begun: the night ended at ")
    assert bool(night.skipped) is not begun


def test_an_end_needs_a_gate_or_a_training(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"deadline: applies to gate and training; use sweep\.stop\.deadline"):
        PipelineSpec.model_validate({"sweep": make_spec(tmp_path), "deadline": "06:00 Europe/Berlin"})
    with pytest.raises(SpecError, match="deadline: 'Berln' is not a time zone"):
        read_deadline("06:00 Berln")
