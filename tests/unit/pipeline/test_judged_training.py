"""Which trainings a judge takes: that of the trial that the gate promoted, and of no limit's making."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.outcome import SweepOutcome, TrainOutcome
from raysweep.outcome.train import DataDigest, TrainSource
from raysweep.pipeline import prepare_judge
from raysweep.pipeline.gate import prepare_gate
from raysweep.runs.training import RunFolder
from raysweep.specs import TrainSpec
from raysweep.specs.identity import RunId
from raysweep.storage.objects.opening import open_store
from tests.begun_trainings import begin_training
from tests.unit.pipeline.gates import GATE, configs, gave, make_spec, stored, swept

JUDGE = {"evaluate": "m:score", "metric": "auc", "mode": "max"}


def promoted(storage: Path) -> SweepOutcome:
    """A sweep whose gate promoted its second trial, and waits for a judgement."""
    spec = make_spec(storage)
    outcome = stored(spec, swept("n1", 0.5, 0.9))
    prepared = prepare_gate(spec, outcome, GATE, is_judged=True)
    scores = [config["x"] for _ in range(2) for config in configs(prepared)]
    return outcome.model_copy(update={"gate": prepared.settle(gave(prepared, *scores))})


def trained(storage: Path, **fields: Any) -> TrainOutcome:
    """A training with a model, as it is stored."""
    run = RunId(kind="train", name="full", key="n1")
    folder = RunFolder(open_store(storage), run.id)
    begin_training(folder, TrainSpec(name="full", trainable="m:f", storage_path=str(storage)), run.key)
    model = storage / run.id / "model"
    model.mkdir(parents=True)
    (model / "model.json").write_text("[0.7]")
    times = {"started_at": 1.0, "ended_at": 2.0}
    named = {"run_id": run.id, "name": run.name, "key": run.key, "uri": folder.uri, "model_uri": str(model)}
    outcome = TrainOutcome.model_validate({**named, **times, "status": "completed", **fields})
    folder.write_outcome(outcome)
    return outcome


def source_of(outcome: SweepOutcome, trial: str = "00001") -> TrainSource:
    return TrainSource(sweep=outcome.uri, trial_id=trial)


@pytest.mark.parametrize(
    ("trial", "made"), [("00000", "n1/00000"), (None, "trained no trial of a sweep")], ids=["other", "none"]
)
def test_a_training_of_anything_else_is_refused(tmp_path: Path, trial: str | None, made: str) -> None:
    """Also one that names no trial: it may be anybody's model."""
    outcome = promoted(tmp_path)
    training = trained(tmp_path, source=source_of(outcome, trial) if trial is not None else None)
    with pytest.raises(SpecError, match=rf"{made}, and the gate promoted .*n1/00001"):
        prepare_judge(JUDGE, outcome, training)


@pytest.mark.parametrize("limit", ["deadline", "time_budget", "below_prediction"])
def test_a_training_that_a_limit_cut_has_failed(tmp_path: Path, limit: str) -> None:
    outcome = promoted(tmp_path)
    training = trained(tmp_path, source=source_of(outcome), ended_by=limit)
    verdict = prepare_judge(JUDGE, outcome, training).verdict
    assert verdict is not None
    assert (verdict.verdict, verdict.reasons) == ("failed", ("cut_training",))
    assert verdict.why.endswith(f"was cut: {limit}")


@pytest.mark.parametrize(("allowed", "reasons"), [(False, ("changed_data",)), (True, ())])
def test_data_that_changed_while_it_trained(tmp_path: Path, allowed: bool, reasons: tuple[str, ...]) -> None:
    outcome = promoted(tmp_path)
    digest = DataDigest(
        name="rows",
        uri="s3://b/rows",
        digest="0" * 64,
        of="content",
        objects=1,
        size_bytes=9,
        has_changed=True,
    )
    training = trained(tmp_path, source=source_of(outcome), data=(digest,))
    verdict = prepare_judge(JUDGE | {"allow_changed_data": allowed}, outcome, training).verdict
    assert (verdict.reasons if verdict is not None else ()) == reasons
