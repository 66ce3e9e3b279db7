"""Nights as their pipelines store them: sweep, gate, verdict, training."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from raysweep.outcome import (
    AttemptOutcome,
    Confirmed,
    GateOutcome,
    SweepOutcome,
    TrainOutcome,
    TrainSource,
    TrialOutcome,
    Usage,
)
from raysweep.outcome.predicted import Predicted
from raysweep.runs.across_runs.verdicts import keep_verdict
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.runs.training import RunFolder
from raysweep.specs import SweepSpec, TrainSpec, sweep_id
from raysweep.specs.identity import RunId, key_within
from raysweep.storage.objects.opening import open_store
from tests.begun_trainings import begin_training

DAY_S = 86_400.0
PROMOTED = "promoted: auc 0.7450 (trial 00002) is 0.0045 better than the champion's 0.7405"
REFUSED = (
    "not promoted: auc 0.7389 (trial 00002) is 0.0003 better than the champion's 0.7386; 0.0010 is required"
)


class Nights:
    """A storage path to which nights are added."""

    def __init__(self, root: Path) -> None:
        self.store = open_store(root)
        self.url = self.store.url
        self._spec = SweepSpec(
            name="churn",
            trainable="examples.quick:steps",
            param_space={"x": {"uniform": [0, 9]}},
            metric="auc",
            mode="max",
            num_samples=3,
            storage_path=self.url,
        )

    def add(
        self,
        key: str,
        *,
        days_ago: float = 0.0,
        trials: int = 3,
        trial_s: float = 600.0,
        promoted: bool | None = None,
        trains: bool = False,
        predicted: dict[str, Any] | None = None,
        name: str = "churn",
    ) -> str:
        """A night that ended; returns its sweep's id. `promoted`: None for one without a gate."""
        at = time.time() - days_ago * DAY_S
        swept = self._sweep(name, key, at, trials, trial_s)
        if promoted is not None:
            self._judge(swept, promoted, swept.ended_at)
        if trains:
            self._train(swept, predicted)
        return swept.sweep_id

    def begin(self, key: str, name: str = "churn") -> SweepFolder:
        """A night that has begun, and has no outcome."""
        spec = self._spec.replace(name=name)
        folder = SweepFolder(self.store, sweep_id(name, key))
        folder.write_spec_if_absent(SweepRecord(digest=spec.digest(), key=key, seed=1, spec=spec.to_dict()))
        return folder

    def _sweep(self, name: str, key: str, at: float, count: int, trial_s: float) -> SweepOutcome:
        folder = self.begin(key, name)
        end = at + trial_s
        trials = tuple(
            TrialOutcome(
                trial_id=f"{number:05d}",
                number=number,
                state="completed",
                config={"x": float(number)},
                metrics={"auc": 0.73 + number / 1000},
                score=0.73 + number / 1000,
                attempts=(AttemptOutcome(attempt=1, started_at=at, ended_at=end, end="completed"),),
                started_at=at,
                ended_at=end,
            )
            for number in range(count)
        )
        outcome = SweepOutcome(
            sweep_id=folder.sweep_id,
            name=name,
            key=key,
            status="completed",
            why="all trials ended",
            metric="auc",
            mode="max",
            best=trials[-1],
            trials=trials,
            counts={"completed": count},
            num_trials=count,
            started_at=at,
            ended_at=at + trial_s * count,
            usage=Usage(active_s=trial_s * count),
            uri=folder.uri,
        )
        folder.write_outcome_if_absent(outcome)
        return outcome

    def _judge(self, swept: SweepOutcome, promoted: bool, at: float) -> None:
        gate = f"{int(at):012x}"
        again = self._sweep(f"{swept.name}-gate", key_within(swept.key, "gate", gate), at, 3, 60.0)
        verdict = GateOutcome(
            promoted=promoted,
            why=PROMOTED if promoted else REFUSED,
            champion=Confirmed(config={"x": 1.0}, mean=0.7386, n=3),
            gate_id=gate,
            sweep_id=again.sweep_id,
            at=at,
        )
        keep_verdict(self.store, swept.sweep_id, gate, verdict)

    def _train(self, swept: SweepOutcome, predicted: dict[str, Any] | None) -> None:
        run = RunId(kind="train", name="churn-full", key=key_within(swept.key, "best", "0123456789ab"))
        spec = TrainSpec(name="churn-full", trainable="m:f", config={"x": 1}, storage_path=self.url)
        folder = RunFolder(self.store, run.id)
        begin_training(folder, spec, run.key)
        folder.write_outcome(
            TrainOutcome(
                run_id=run.id,
                name=run.name,
                key=run.key,
                status="completed",
                started_at=swept.ended_at,
                ended_at=swept.ended_at + 60,
                uri=folder.uri,
                predicted=Predicted.model_validate(predicted) if predicted is not None else None,
                source=TrainSource(sweep=swept.uri, trial_id="00001"),
            )
        )
