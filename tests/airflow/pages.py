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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

if "airflow" not in sys.modules and "AIRFLOW_HOME" not in os.environ:
    _home = tempfile.mkdtemp(prefix="airflow-")
    atexit.register(shutil.rmtree, _home, ignore_errors=True)
    os.environ["AIRFLOW_HOME"] = _home

from raysweep.core import SweepState, encode, step
from raysweep.core.vocabulary import events as ev
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.runs.ownership.holder import current_holder
from raysweep.runs.reading.progress import make_progress
from raysweep.simulate import Simulated, simulate
from raysweep.specs import SweepSpec
from raysweep.storage.journal.writer import JournalWriter
from raysweep.storage.objects.opening import open_store

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


def store(
    root: Path,
    spec: dict[str, Any],
    simulated: Simulated,
    *,
    part: float = 1.0,
    ago_s: float = 0.0,
    is_held: bool = True,
    sweep_id: str = "flights-0123abcd",
) -> SweepFolder:
    """Store the first part of a simulated sweep, as if it had happened until `ago_s` ago.

    The whole of it has an outcome.
    """
    folder = SweepFolder(open_store(root), sweep_id)
    made = SweepSpec.from_any(spec)
    seed = int(spec["seed"])
    folder.write_spec_if_absent(
        SweepRecord(digest=made.digest(), key="night", seed=seed, spec=made.to_dict())
    )
    count = max(1, round(len(simulated.journal) * part))
    events = _shifted(simulated.journal[:count], ago_s)
    journal = folder.journal()
    assert not list(journal.read())
    claim = journal.claim(lambda _: encode(events[0]))
    state = SweepState.create(made, seed)
    step(state, events[0])
    with JournalWriter(
        journal.backend, claim.generation, claim.next_number, lambda error: None, writer=claim.writer
    ) as writer:
        for event in events[1:]:
            writer.write(encode(event))
            step(state, event)
    progress = make_progress(
        state, sweep_id=sweep_id, holder=current_holder(), at=events[-1].at, total=int(spec["num_samples"])
    )
    folder.write_progress(progress.model_copy(update={"has_left": not is_held}))
    if part >= 1.0:
        by = events[-1].at - simulated.journal[-1].at
        ended = simulated.outcome.model_copy(
            update={
                "sweep_id": sweep_id,
                "started_at": simulated.outcome.started_at + by,
                "ended_at": simulated.outcome.ended_at + by,
                "uri": folder.uri,
                "trials": tuple(_later(trial, by) for trial in simulated.outcome.trials),
            }
        )
        folder.write_outcome_if_absent(ended)
    return folder


def _later(record: Any, by: float) -> Any:
    """A trial, or one of its attempts, as if it had been `by` seconds later."""
    times = {name: getattr(record, name) for name in ("started_at", "ended_at")}
    update: dict[str, Any] = {name: at + by for name, at in times.items() if at is not None}
    if hasattr(record, "attempts"):
        update["attempts"] = tuple(_later(attempt, by) for attempt in record.attempts)
    return record.model_copy(update=update)


def _shifted(events: Sequence[ev.Event], ago_s: float) -> list[ev.Event]:
    """The same events, the last of them `ago_s` ago."""
    from dataclasses import replace

    by = time.time() - ago_s - events[-1].at
    return [replace(event, at=event.at + by) for event in events]


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
