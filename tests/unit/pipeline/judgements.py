"""Judgements without Ray: a night that a gate promoted, its training, and the figures of both models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from raysweep.judge.figures import read_figures
from raysweep.judge.trial import FILE
from raysweep.outcome import ErrorInfo, SweepOutcome, TrainOutcome, TrialOutcome
from raysweep.outcome.train import TrainSource
from raysweep.pipeline import JudgeRun, with_gate
from raysweep.runs.training import RunFolder
from raysweep.specs.approval import ApprovalSpec
from raysweep.step import brief
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.objects.opening import open_store
from tests.unit.pipeline.gates import make_spec, night, stored, swept

JUDGE: dict[str, Any] = {"evaluate": "m:score", "metric": "auc", "mode": "max", "retries": 0}
FOLDS = (0.70, 0.72, 0.69, 0.71, 0.68)


def promoted(
    storage: Path, key: str, score: float = 0.5, approval: ApprovalSpec | None = None
) -> dict[str, Any]:
    """The brief of a gate with a judge behind it."""
    outcome = stored(make_spec(storage), swept(key, score))
    return brief(with_gate(outcome, night(storage, key, score, approval=approval, is_judged=True)))


def trained(storage: Path, key: str, gain: float = 0.0, **fields: Any) -> dict[str, Any]:
    """The brief of that night's training: a model whose folds are better by this."""
    folder = RunFolder(open_store(storage), f"train-{key}")
    model = Path(storage, folder.run_id, "model")
    model.mkdir(parents=True)
    (model / "model.json").write_text(json.dumps([fold + gain for fold in FOLDS]))
    source = TrainSource(sweep=str(Path(storage, key)), trial_id="00000")
    ended: dict[str, Any] = {"status": "completed", "started_at": 1.0, "ended_at": 2.0, "source": source}
    ended |= fields
    outcome = TrainOutcome(
        run_id=folder.run_id, name="full", model_uri=f"{folder.uri}/model", uri=folder.uri, **ended
    )
    folder.write_outcome(outcome)
    return brief(outcome)


def evaluated(run: JudgeRun, *, fails: bool = False) -> SweepOutcome:
    """The end of a judgement's sweep: each trial has the folds of its model, or has failed."""
    asked = run.request
    again = swept(asked.run.id, *(0.5 for _ in run.configs))
    error = ErrorInfo(kind="user_error", type="KeyError", message="'holdout'")
    trials: list[TrialOutcome] = []
    for trial, config in zip(again.trials, run.configs, strict=True):
        update: dict[str, Any] = {"config": config}
        if fails:
            update |= {"state": "failed", "score": None, "error": error}
        else:
            update["checkpoint_uri"] = _figures(run, trial.trial_id, config)
        trials.append(trial.model_copy(update=update))
    ended: dict[str, Any] = {"name": asked.run.name, "key": asked.run.key, "trials": tuple(trials)}
    ended |= {"status": "failed", "best": None, "error": error} if fails else {}
    return again.model_copy(update=ended)


def _figures(run: JudgeRun, trial_id: str, config: dict[str, Any]) -> str:
    folder = Path(run.store.url, "figures", trial_id)
    folder.mkdir(parents=True, exist_ok=True)
    folds = json.loads(Path(config["model"], "model.json").read_text())
    (folder / FILE).write_text(read_figures(folds, config["digest"]).to_json())
    return CheckpointStore(run.store, run.request.run.id).save(trial_id, 0, folder).uri
