"""Sweeps as the engine stores them, to be looked at through the page.

Import it before anything of Airflow: where nobody has chosen an AIRFLOW_HOME, it chooses one that is thrown
away.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

if "airflow" not in sys.modules and "AIRFLOW_HOME" not in os.environ:
    _home = tempfile.mkdtemp(prefix="airflow-")
    atexit.register(shutil.rmtree, _home, ignore_errors=True)
    os.environ["AIRFLOW_HOME"] = _home

from raysweep.simulate import Simulated, simulate
from tests.unit.pages.sweeps import store_part

SPEC: dict[str, Any] = {
    "name": "flights",
    "trainable": "m:f",
    "metric": "auc",
    "mode": "max",
    "search": "random",
    "num_samples": 60,
    "seed": 11,
    "param_space": {
        "learning_rate": {"loguniform": [0.01, 0.3]},
        "num_leaves": {"lograndint": [8, 256]},
        "net": {"dropout": {"uniform": [0, 0.5]}, "kind": {"choice": ["wide", "deep"]}},
    },
    "scheduler": {"asha": {"max_t": 27, "grace_period": 3, "reduction_factor": 3}},
    "failure": {"max_failures": 0},
}


def learn(config: dict[str, Any], iteration: int) -> dict[str, float] | None:
    """A learning curve; two of sixty configs fail."""
    if 0.0295 < config["learning_rate"] < 0.0325:
        raise ValueError("the learning rate is in a bad place")
    if iteration > 27:
        return None
    bump = 0.12 * config["net"]["dropout"] + (0.02 if config["net"]["kind"] == "deep" else 0.0)
    top = 0.74 - 2 * (config["learning_rate"] - 0.1) ** 2 - bump
    return {"auc": top - 0.15 / (iteration + 1), "loss": 1 / iteration, "step": iteration}


def night(
    *, curve: Callable[..., Any] = learn, slots: int = 4, **changes: Any
) -> tuple[dict[str, Any], Simulated]:
    """A spec and the sweep it gives, simulated."""
    spec = SPEC | changes
    return spec, simulate(spec, curve, slots=slots, step_s=4.0)


store = store_part


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve an app from a thread; gives its address."""
    import uvicorn

    from devtools.head import free_ports

    (port,) = free_ports(1)
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error", lifespan="off")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + 20
        while not server.started:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)
