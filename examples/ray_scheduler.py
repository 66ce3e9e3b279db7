"""A scheduler object of Ray Tune's in a sweep: taken as the one of ours that decides as it does.

python -m examples.ray_scheduler
"""

from __future__ import annotations

from ray.tune.schedulers import ASHAScheduler

import raysweep as rs

SPEC = rs.SweepSpec(
    name="ray-scheduler",
    trainable="examples.functions:train",
    param_space={"lr": {"loguniform": [0.0001, 1.0]}, "momentum": {"uniform": [0, 1]}},
    metric="loss",
    mode="min",
    num_samples=18,
    seed=1,
    scheduler=ASHAScheduler(max_t=9, grace_period=1, reduction_factor=3),
)

if __name__ == "__main__":
    print(rs.run_sweep(SPEC).best)
