"""`python -m benchmarks.nights [--seeds N] [--toy]`: three nights on the flights, each on another sample.

Night 1 begins cold. Night 2 begins warm (`warm_start: last`) and, for comparison, cold: after how many
trials does each have a config as good as night 1's champion is on tonight's sample? Night 3 begins warm; the
gate runs its best beside the champion. Search, memory, champions and gate are raysweep's own; trials run one
after the other in this process, without Ray. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from raysweep.outcome import SweepOutcome, TrialOutcome
from raysweep.pipeline import prepare_gate
from raysweep.runs.across_runs.champions import Line, read_champion
from raysweep.runs.across_runs.warm_start import recall
from raysweep.runs.folder import SweepFolder
from raysweep.search import WarmStart, make_searcher
from raysweep.specs import SweepSpec, sweep_id
from raysweep.specs.pipeline import GateSpec
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store

Score = Callable[[Mapping[str, Any], int], float]
"""The score of a config on the sample of this number; larger is better."""
TRIALS = 16
GATE_SEEDS = 3
SPACE = {
    "learning_rate": {"loguniform": [0.01, 0.3]},
    "num_leaves": {"lograndint": [8, 256]},
    "min_child_samples": {"lograndint": [10, 1000]},
    "lambda_l2": {"loguniform": [0.01, 100]},
    "cat_smooth": {"loguniform": [1, 200]},
    "max_depth": {"choice": [4, 6, 8, 12]},
}


def flights_auc(config: Mapping[str, Any], sample: int, *, rows: int = 8000, rounds: int = 40) -> float:
    """LightGBM on a sample of the training days, judged on a fixed part of the validation days."""
    import lightgbm as lgb

    from examples.flights import _FIXED, _datasets
    from examples.flights.data import TRAIN, VALID, load

    flights = load()
    params = _FIXED | dict(config)
    learn, judge = _datasets(
        flights.rows(TRAIN, limit=rows, seed=sample), flights.rows(VALID, limit=20_000), params
    )
    booster = lgb.train(params, learn, rounds, [judge], ["judge"], keep_training_booster=True)
    return float(booster.eval_valid()[0][2])


def toy(config: Mapping[str, Any], sample: int) -> float:
    """A hill whose top moves a little with the sample."""
    import math

    shift = ((sample * 7919) % 1000 / 1000 - 0.5) * 0.1
    x = math.log(config["learning_rate"] / 0.08) + shift
    y = math.log(config["num_leaves"] / 60) - shift
    return 0.74 - 0.01 * x * x - 0.01 * y * y - 0.002 * math.log(config["lambda_l2"]) ** 2


def run_night(
    store: Store, spec: SweepSpec, key: str, score: Score, sample: int, warm: WarmStart | None
) -> Any:
    """One sweep, its outcome stored: its scores in the order of the trials."""
    searcher = make_searcher(spec, spec.seed or 0, warm)
    trials = []
    for number in range(spec.num_samples):
        config = searcher.ask(number)
        if config is None:
            break
        value = score(config, sample)
        searcher.tell(number, value, "completed")
        trials.append(
            TrialOutcome(
                trial_id=f"{number:05d}", number=number, state="completed", config=config, score=value
            )
        )
    name = sweep_id(spec.name, key)
    outcome = SweepOutcome(
        sweep_id=name,
        name=spec.name,
        key=key,
        status="completed",
        metric=spec.metric,
        mode=spec.mode,
        best=max(trials, key=lambda trial: trial.score or 0.0),
        trials=tuple(trials),
        started_at=0.0,
        ended_at=1.0,
    )
    if warm is not None or key == "1":
        SweepFolder(store, name).write_outcome_if_absent(outcome)
    return outcome


def run_gate(spec: SweepSpec, outcome: SweepOutcome, score: Score, sample: int) -> Any:
    """The gate's verdict, on samples of its own."""
    gate = GateSpec(confirm_top_k=1, seeds=GATE_SEEDS, min_improvement=0.002, test="paired")
    prepared = prepare_gate(spec, outcome, gate)
    assert prepared.plan is not None
    ran, run = prepared.plan.ran, prepared.request.run
    trials = tuple(
        TrialOutcome(
            trial_id=f"{number:05d}",
            number=number,
            state="completed",
            score=score(ran[number % len(ran)].config, sample * 100 + number // len(ran)),
        )
        for number in range(len(ran) * GATE_SEEDS)
    )
    again = outcome.model_copy(
        update={"trials": trials, "sweep_id": run.id, "name": run.name, "key": run.key}
    )
    return prepared.settle(again)


def trials_until(outcome: SweepOutcome, goal: float) -> int:
    """After how many trials the goal was reached; one more than all, where it was not."""
    reached = [trial.number + 1 for trial in outcome.trials if (trial.score or 0.0) >= goal]
    return min(reached, default=len(outcome.trials) + 1)


def three_nights(seed: int, score: Score) -> dict[str, Any]:
    """One seed's figures."""
    with tempfile.TemporaryDirectory(prefix="raysweep-nights-") as folder:
        store = open_store(folder)
        spec = SweepSpec(
            name="flights",
            trainable="examples.flights:train",
            param_space=SPACE,
            metric="auc",
            mode="max",
            num_samples=TRIALS,
            search={"tpe": {"n_startup_trials": 8}},
            warm_start="last",
            storage_path=folder,
        )
        one, two, three = (spec.replace(seed=seed * 10 + night) for night in (1, 2, 3))
        first = run_night(store, one, "1", score, seed * 10 + 1, None)
        promoted = [run_gate(one, first, score, seed * 10 + 1).promoted]
        champion = read_champion(store, Line(name=spec.name, metric="auc", mode="max")).champion
        assert champion is not None
        sample = seed * 10 + 2
        goal = score(champion.config, sample)
        cold = run_night(store, two, "2", score, sample, None)
        warm = run_night(store, two, "2", score, sample, recall(store, two, sweep_id("flights", "2")))
        promoted.append(run_gate(two, warm, score, sample).promoted)
        last = run_night(
            store, three, "3", score, seed * 10 + 3, recall(store, three, sweep_id("flights", "3"))
        )
        verdict = run_gate(three, last, score, seed * 10 + 3)
        return {
            "seed": seed,
            "trials_warm": trials_until(warm, goal),
            "trials_cold": trials_until(cold, goal),
            "best_warm": max(trial.score or 0.0 for trial in warm.trials),
            "best_cold": max(trial.score or 0.0 for trial in cold.trials),
            "promoted": [*promoted, verdict.promoted],
            "why_third": verdict.why,
        }


def summary(nights: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures over all seeds."""
    return {
        "seeds": len(nights),
        "trials_to_the_champion_warm": statistics.median(night["trials_warm"] for night in nights),
        "trials_to_the_champion_cold": statistics.median(night["trials_cold"] for night in nights),
        "mean_best_warm": statistics.fmean(night["best_warm"] for night in nights),
        "mean_best_cold": statistics.fmean(night["best_cold"] for night in nights),
        "warm_is_at_least_as_good": sum(night["best_warm"] >= night["best_cold"] for night in nights),
        "promoted_first": sum(night["promoted"][0] for night in nights),
        "promoted_second": sum(night["promoted"][1] for night in nights),
        "promoted_third": sum(night["promoted"][2] for night in nights),
    }


def main() -> None:
    """Run, and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nights", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--toy", action="store_true", help="a formula in place of LightGBM")
    asked = parser.parse_args()
    score = toy if asked.toy else partial(flights_auc, rows=asked.rows, rounds=asked.rounds)
    nights = []
    for seed in range(1, asked.seeds + 1):
        nights.append(three_nights(seed, score))
        print(json.dumps(nights[-1]), file=sys.stderr, flush=True)
    print(json.dumps({"summary": summary(nights), "nights": nights}, indent=2))


if __name__ == "__main__":
    main()
