"""LightGBM on the flights that left New York in 2013: will this one arrive more than 15 minutes late?

`train` is what the sweep (`sweep.yaml`) runs: one core, a sample of the training days, a report every few
boosting rounds. `train_full` is what the training step (`train.yaml`) runs on Ray Train workers:
every flight of the training and validation days, judged on days that the sweep never saw.

Where a run is interrupted it continues from its last checkpoint. With one core, and without row or column
sampling, LightGBM grows the same trees from there as it would have without the interruption.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.flights.data import CATEGORICAL, FEATURES, TEST, TRAIN, VALID, load

if TYPE_CHECKING:
    import lightgbm as lgb

REPORTS = 27
"""Reports of a whole trial: the scheduler's `max_t`."""
ROUNDS_PER_REPORT = 6
REPORTS_PER_CHECKPOINT = 3
"""Every rung of the scheduler (3, 9, 27) has a checkpoint."""
ROUNDS = REPORTS * ROUNDS_PER_REPORT
"""Trees of a whole trial. The full run grows more, by the rule in `train.yaml`."""
SAMPLE_ROWS = 80_000
"""Training flights of one trial; all validation flights judge it."""
SAMPLE_SEED = 2013

FULL_ROUNDS_PER_REPORT = 27

_MODEL = "model.txt"
_FIXED = {
    "objective": "binary",
    "metric": "auc",
    "seed": 2013,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "verbosity": -1,
}


def train(config: Mapping[str, Any]) -> None:
    """One trial. `config` holds LightGBM parameters, and if wanted `rows` (default `SAMPLE_ROWS`), `rounds`
    (default `ROUNDS`) and `sample_seed`, which chooses the rows: the gate's seeds are other samples. `origin`
    is one airport of three.

    Reports `{"auc": area under the ROC curve, on the validation days, "step": boosting rounds}`.
    """
    import raysweep as rs

    params = dict(config)
    limit, seed = params.pop("rows", SAMPLE_ROWS), params.pop("sample_seed", SAMPLE_SEED)
    origin, rounds = params.pop("origin", None), params.pop("rounds", ROUNDS)
    flights = load()
    train_set, valid_set = _datasets(
        flights.rows(TRAIN, limit=limit, seed=seed, origin=origin),
        flights.rows(VALID, origin=origin),
        _FIXED | params,
    )
    done = _model_of(rs.get_checkpoint())
    for booster in _boost(_FIXED | params, train_set, valid_set, done, ROUNDS_PER_REPORT, rounds):
        step = booster.current_iteration()
        metrics = {"auc": _auc(booster), "step": step}
        if (step // ROUNDS_PER_REPORT) % REPORTS_PER_CHECKPOINT == 0:
            with _saved(booster) as folder:
                rs.report(metrics, checkpoint=folder)
        else:
            rs.report(metrics)


def train_full(config: Mapping[str, Any]) -> None:
    """The full run, on one or more Ray Train workers. `config` as in `train`, and `rounds` (or `ROUNDS`).

    Each worker holds its share of the flights; LightGBM's `data_parallel` learner merges their histograms
    over sockets. Reports `{"auc": on the test days, "step": boosting rounds, "flights": learned from}`.
    """
    import ray.train
    from ray.train.lightgbm import get_network_params

    import raysweep as rs

    params = dict(config)
    rounds = params.pop("rounds", ROUNDS)
    params.pop("sample_seed", None)
    params.pop("rows", None)  # the scale of the run: all flights
    origin = params.pop("origin", None)
    context = ray.train.get_context()
    rank, world_size = context.get_world_rank(), context.get_world_size()
    params = _FIXED | params
    if world_size > 1:
        params |= {"tree_learner": "data_parallel", "pre_partition": True, **get_network_params()}
    flights = load()
    x, y = flights.rows(TRAIN, VALID, origin=origin)
    train_set, test_set = _datasets(
        (x[rank::world_size], y[rank::world_size]), flights.rows(TEST, origin=origin), params
    )
    done = _model_of(rs.get_checkpoint())
    for booster in _boost(params, train_set, test_set, done, FULL_ROUNDS_PER_REPORT, rounds):
        metrics = {"auc": _auc(booster), "step": booster.current_iteration(), "flights": len(x)}
        if rank == 0:
            with _saved(booster) as folder:
                rs.report(metrics, checkpoint=folder)
        else:
            rs.report(metrics)


def _datasets(
    train: tuple[Any, Any], judge: tuple[Any, Any], params: dict[str, Any]
) -> tuple[lgb.Dataset, lgb.Dataset]:
    import lightgbm as lgb

    train_set = lgb.Dataset(
        *train,
        feature_name=list(FEATURES),
        categorical_feature=[FEATURES.index(name) for name in CATEGORICAL],
        params=params,
        free_raw_data=False,  # continuing from a checkpoint scores the rows with the earlier trees
    )
    return train_set, lgb.Dataset(*judge, reference=train_set, free_raw_data=False)


def _boost(
    params: dict[str, Any],
    train_set: lgb.Dataset,
    judge_set: lgb.Dataset,
    done: lgb.Booster | None,
    rounds_per_report: int,
    rounds: int,
) -> Iterator[lgb.Booster]:
    """Grow to `rounds` trees, and hand out the booster every `rounds_per_report` of them."""
    import lightgbm as lgb

    step = done.current_iteration() if done else 0
    booster = None
    while step < rounds:
        if booster is None:
            booster = lgb.train(
                params,
                train_set,
                rounds_per_report,
                [judge_set],
                ["judge"],
                init_model=done,
                keep_training_booster=True,
            )
        else:
            for _ in range(rounds_per_report):
                booster.update()
        step += rounds_per_report
        yield booster


def _auc(booster: lgb.Booster) -> float:
    return float(booster.eval_valid()[0][2])


def _model_of(checkpoint: Any) -> lgb.Booster | None:
    import lightgbm as lgb

    if checkpoint is None:
        return None
    with checkpoint as folder:
        return lgb.Booster(model_file=Path(folder) / _MODEL)


@contextmanager
def _saved(booster: lgb.Booster) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="flights-") as folder:
        booster.save_model(Path(folder) / _MODEL)
        yield Path(folder)
