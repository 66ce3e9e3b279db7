"""Outcomes of sweeps for briefs."""

from __future__ import annotations

import math

from raysweep.outcome import GateOutcome, SweepOutcome, TrialOutcome


def trial(number: int, *, metrics: int = 1, config: int = 1) -> TrialOutcome:
    return TrialOutcome(
        trial_id=f"{number:05d}",
        number=number,
        state="completed",
        score=number / 10,
        config={f"parameter_{at}": "é" * 20 for at in range(config)},
        metrics={"auc": number / 10} | {f"metric_{at}": math.nan for at in range(metrics)},
        checkpoint_uri=f"s3://bucket/sweeps/s-1/checkpoints/{number:05d}/3.json",
    )


def sweep(*, trials: int = 9, why: str = "done", **sizes: int) -> SweepOutcome:
    all_trials = tuple(trial(number, **sizes) for number in range(trials))
    return SweepOutcome(
        sweep_id="s-1",
        name="s",
        key="k",
        status="completed",
        why=why,
        metric="auc",
        mode="max",
        best=all_trials[-1] if all_trials else None,
        trials=all_trials,
        counts={"completed": trials},
        started_at=0,
        ended_at=1,
        uri="s3://bucket/sweeps/s-1",
        promoted=True,
        gate=GateOutcome(promoted=True, why="champion 0.7; promoted", improvement=math.inf),
    )
