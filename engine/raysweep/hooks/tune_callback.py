"""A callback of Ray Tune's behind raysweep's hooks: it gets trials that answer as Tune's do.

Ray is not imported here: the callback has.
"""

from __future__ import annotations

import os
import socket
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from raysweep.hooks.base import Callback, CallbackSetup
from raysweep.hooks.events import (
    CheckpointSaved,
    Report,
    SweepEnd,
    SweepStart,
    TrialEnd,
    TrialRef,
    TrialStart,
)
from raysweep.hooks.naming import Names
from raysweep.hooks.numbers import ODD, flat

FOLDER: Final = "ray_tune"


class TuneCheckpoint:
    """A checkpoint, as Tune's callbacks see one: `path` is its URI."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.filesystem = None

    def __repr__(self) -> str:
        return f"Checkpoint({self.path})"


class TuneTrial:
    """A trial with the attributes of `ray.tune.experiment.Trial` that callbacks read."""

    custom_trial_name = None
    trainable_name = "trainable"
    storage = None

    def __init__(self, event: TrialRef, setup: CallbackSetup, folder: Path) -> None:
        self.trial_id = event.trial_id
        self.trainable_name = setup.name
        self.config = dict(event.config)
        self.experiment_dir_name = setup.sweep_id
        self.local_experiment_path = str(folder)
        self.local_path = self.logdir = self.path = str(folder / event.trial_id)
        self.relative_logdir = event.trial_id
        self.status = "PENDING"
        self.last_result: dict[str, Any] = {}
        self.checkpoint: TuneCheckpoint | None = None
        self.error_file: str | None = None
        self.num_failures = 0
        self.start_time = event.at
        self.attempt_at = self.reported_at = event.at

    @property
    def evaluated_params(self) -> dict[str, Any]:
        """The config, by flat names."""
        values = flat(self.config)
        names = Names("of Ray Tune", lambda name: name.replace(".", "/")).of(values)
        return {names[name]: value for name, value in values.items()}

    @property
    def experiment_tag(self) -> str:
        """The number of the trial, and its config."""
        shown = ",".join(f"{name}={value}" for name, value in self.evaluated_params.items())
        return f"{int(self.trial_id)}_{shown}" if self.trial_id.isdigit() else shown

    @property
    def has_reported_at_least_once(self) -> bool:
        """True if there is a result."""
        return bool(self.last_result)

    def init_local_path(self) -> None:
        """Make its folder."""
        Path(self.local_path).mkdir(parents=True, exist_ok=True)

    def is_finished(self) -> bool:
        """True if it has ended."""
        return self.status in ("TERMINATED", "ERROR")

    def get_ray_actor_ip(self) -> str | None:
        """Not known."""
        return None

    def __str__(self) -> str:
        return f"{self.trainable_name}_{self.trial_id}"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TuneTrial) and other.trial_id == self.trial_id

    def __hash__(self) -> int:
        return hash(self.trial_id)


class TuneCallback(Callback):
    """Calls the callback as Tune's event loop would."""

    def __init__(self, callback: Any, setup: CallbackSetup) -> None:
        self._callback, self._setup = callback, setup
        self._folder = _folder(setup)
        self._trials: dict[str, TuneTrial] = {}
        self._started: set[str] = set()
        self._iteration = 0
        callback.setup(stop=None, num_samples=1, total_num_samples=1, name=setup.sweep_id)

    def on_sweep_start(self, event: SweepStart) -> None:
        """Tune has no hook of its own for it."""

    def on_trial_start(self, event: TrialStart) -> None:
        """The trial, or another attempt of it."""
        trial = self._trial(event)
        trial.config = dict(event.config)
        trial.attempt_at = event.at
        self._start(trial)

    def on_report(self, event: Report) -> None:
        """A result, with what Tune adds to one."""
        if not event.counts:
            return
        trial = self._running(event)
        trial.last_result = result = self._result(trial, event)
        self._call("on_trial_result", trial, result=result)

    def on_checkpoint(self, event: CheckpointSaved) -> None:
        """A checkpoint."""
        trial = self._running(event)
        trial.checkpoint = TuneCheckpoint(event.uri)
        self._call("on_checkpoint", trial, checkpoint=trial.checkpoint)
        self._call("on_trial_save", trial)

    def on_trial_end(self, event: TrialEnd) -> None:
        """The end; a trial that never began has none in Tune either."""
        if event.trial_id not in self._started and not event.attempt:
            return
        trial = self._running(event)
        is_failed = event.state == "failed"
        trial.status = "ERROR" if is_failed else "TERMINATED"
        trial.num_failures = int(is_failed)
        trial.last_result = {**trial.last_result, "done": True}
        self._call("on_trial_error" if is_failed else "on_trial_complete", trial)
        self._started.discard(event.trial_id)

    def on_sweep_end(self, event: SweepEnd) -> None:
        """The end of the experiment."""
        self._callback.on_experiment_end(trials=list(self._trials.values()))

    def _trial(self, event: TrialRef) -> TuneTrial:
        trial = self._trials.get(event.trial_id)
        if trial is None:
            trial = self._trials[event.trial_id] = TuneTrial(event, self._setup, self._folder)
        return trial

    def _running(self, event: TrialRef) -> TuneTrial:
        """The trial; where this process did not see it begin, the callback hears of that first."""
        trial = self._trial(event)
        if event.trial_id not in self._started:
            self._start(trial)
        return trial

    def _start(self, trial: TuneTrial) -> None:
        trial.status = "RUNNING"
        # With a checkpoint, loggers of Tune's would fetch their files from where Tune keeps them.
        trial.checkpoint = None
        trial.init_local_path()  # loggers of Tune's write into it without looking
        self._started.add(trial.trial_id)
        self._call("on_trial_start", trial)

    def _call(self, hook: str, trial: TuneTrial, **more: Any) -> None:
        self._iteration += 1
        trials = list(self._trials.values())
        getattr(self._callback, hook)(iteration=self._iteration, trials=trials, trial=trial, **more)

    def _result(self, trial: TuneTrial, event: Report) -> dict[str, Any]:
        before, trial.reported_at = trial.reported_at, event.at
        own = {
            name: ODD.get(value, value) if isinstance(value, str) else value
            for name, value in event.metrics.items()
        }
        return {
            "training_iteration": event.iteration,
            "time_this_iter_s": max(0.0, event.at - before),
            "time_total_s": max(0.0, event.at - trial.start_time),
            "time_since_restore": max(0.0, event.at - trial.attempt_at),
            "timestamp": int(event.at),
            "date": datetime.fromtimestamp(event.at).astimezone().strftime("%Y-%m-%d_%H-%M-%S"),
            "hostname": socket.gethostname(),
            "node_ip": "",
            "pid": os.getpid(),
            "done": False,
            **own,
            "trial_id": event.trial_id,
            "config": trial.config,
            "experiment_tag": trial.experiment_tag,
        }


def _folder(setup: CallbackSetup) -> Path:
    """The folder for files of loggers: in the sweep's folder where that is local."""
    if "://" not in setup.uri or setup.uri.startswith("file://"):
        return Path(setup.uri.removeprefix("file://")) / FOLDER
    return Path("~/ray_results").expanduser() / setup.sweep_id
