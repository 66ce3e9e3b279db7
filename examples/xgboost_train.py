"""XGBoost on several workers, each with its part of a Ray Data set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ray.data

FEATURES = ("x0", "x1", "x2", "x3")


def make_rows(config: Mapping[str, Any]) -> ray.data.Dataset:
    """`rows` (default 2,000) made-up rows of four features and `y`, which the first two decide.

    Here stands what reads your own data: `ray.data.read_parquet("s3://bucket/train")`, a query, a join.
    """
    import numpy as np
    import pandas as pd
    import ray.data

    x = np.random.default_rng(0).normal(size=(config.get("rows", 2000), len(FEATURES)))
    frame = pd.DataFrame(x, columns=list(FEATURES)).assign(y=x[:, 0] + 2 * x[:, 1])
    return ray.data.from_pandas([frame.iloc[part::8] for part in range(8)])


def train(config: Mapping[str, Any]) -> None:
    """Boost `rounds` (default 20) trees with the other workers, which see each other's gradients.

    Reports `{"rmse": of its own part, "trees": so far, "rows": of its own part}` after every fifth tree, with
    the model as a checkpoint, from which a run that is taken up again continues.
    """
    import ray.train
    import xgboost

    import raysweep as rs

    frame = ray.train.get_dataset_shard("train").materialize().to_pandas()
    part = xgboost.DMatrix(frame[list(FEATURES)], frame["y"])
    params = {"objective": "reg:squarederror", "nthread": 1, "eta": config.get("eta", 0.3)}
    model, checkpoint = None, rs.get_checkpoint()
    if checkpoint is not None:
        with checkpoint as folder:
            model = xgboost.Booster(model_file=folder / "model.ubj")
    trees = model.num_boosted_rounds() if model is not None else 0
    while trees < config.get("rounds", 20):
        model = xgboost.train(params, part, num_boost_round=5, xgb_model=model, verbose_eval=False)
        trees = model.num_boosted_rounds()
        error = float(model.eval(part).rpartition(":")[2])
        with rs.new_checkpoint() as folder:
            model.save_model(folder / "model.ubj")
            # All workers have the same model: one of them hands it on.
            is_first = rs.get_context().rank == 0
            rs.report(
                {"rmse": error, "trees": trees, "rows": len(frame)}, checkpoint=folder if is_first else None
            )
