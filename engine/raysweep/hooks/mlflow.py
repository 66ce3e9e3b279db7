"""`mlflow`: a run for the sweep and one below it for each trial, by MLflow's REST API.

No package of MLflow's is needed. Each write to a run also writes the tag `raysweep.event`, the id of the last
event in it. After a resume the runs are found by their tags, and events up to that id are left out: nothing
is stored twice.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final
from urllib.parse import urlsplit

import orjson
from pydantic import AfterValidator, Field

from raysweep.documents.validation import Problem
from raysweep.errors import SpecError
from raysweep.hooks.base import Callback, CallbackOptions, CallbackSetup, TrialSetup
from raysweep.hooks.events import (
    CheckpointSaved,
    Report,
    SweepEnd,
    SweepStart,
    TrialEnd,
    TrialRef,
    TrialStart,
)
from raysweep.hooks.mlflow_server import (
    BEGUN_TAG,
    SWEEP_TAG,
    TRIAL_TAG,
    Server,
    find_experiment,
    find_run,
    tags_of,
)
from raysweep.hooks.naming import Names
from raysweep.hooks.numbers import numbers_of, texts_of

VARIABLE: Final = "MLFLOW_TRACKING_URI"
OPENER: Final = "raysweep.hooks.mlflow_server:open_run"
MAX_METRICS: Final = 900
"""Metrics in one `log-batch`; MLflow takes 1,000 entities, of which 100 parameters and 100 tags."""
MAX_PARAMS: Final = 100
MAX_PARAM_CHARS: Final = 500
MAX_TAG_CHARS: Final = 5000
MAX_KEY_CHARS: Final = 250
_PARENT: Final = "mlflow.parentRunId"
_EVENT: Final = "raysweep.event"
_STATUS: Final = {"completed": "FINISHED", "stopped": "FINISHED", "failed": "FAILED", "cancelled": "KILLED"}


def check_address(uri: str) -> str:
    """The address of a server. Raises: Problem."""
    return _checked(uri, repr(uri))


def _checked(uri: str, shown: str) -> str:
    """The address; `shown`: what a message calls it. Raises: Problem."""
    parts = urlsplit(uri)
    if parts.username or parts.password:
        fix = "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
        raise Problem("has credentials in it, and would be stored", fix)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Problem(
            f"{shown} is not a web address", "write http://host:5000, the address of an MLflow server"
        )
    return uri.rstrip("/")


class MlflowOptions(CallbackOptions):
    """Runs on an MLflow server. Credentials come from MLflow's own environment variables."""

    places: ClassVar[Mapping[str, str]] = {"tracking_uri": VARIABLE}

    tracking_uri: Annotated[str, AfterValidator(check_address)] | None = None
    """The server, `http://host:5000`; default: the variable MLFLOW_TRACKING_URI where the sweep runs."""
    experiment: Annotated[str, Field(min_length=1)] | None = None
    """The experiment, made where there is none; default: MLFLOW_EXPERIMENT_NAME, or the sweep's name."""
    shared_runs: bool = False
    """Let the trials log to these runs themselves; then a trial opens its run before it begins."""

    def check(self, storage_path: str) -> None:
        """See that there is an address. Raises: SpecError."""
        _ = self.address

    def make(self, setup: CallbackSetup) -> Mlflow:
        """The callback. Raises: SinkDownError."""
        experiment = self._experiment(setup.name)
        return Mlflow(Server(self.address), experiment, setup, is_shared=self.shared_runs)

    def in_trials(self, setup: TrialSetup) -> dict[str, str]:
        """The server and the experiment. MLflow chooses the ids of runs: see `opener`."""
        return {VARIABLE: self.address, "MLFLOW_EXPERIMENT_NAME": self._experiment(setup.name)}

    @property
    def opener(self) -> str:
        """With `shared_runs`: what opens a trial's run, and returns its id."""
        return OPENER if self.shared_runs else ""

    def _experiment(self, name: str) -> str:
        return self.experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or name

    @property
    def address(self) -> str:
        """The server: of the options, or of the variable. Raises: SpecError."""
        if self.tracking_uri is not None:
            return self.tracking_uri
        found = os.environ.get(VARIABLE, "").strip()
        if not found:
            fix = f"write tracking_uri: http://host:5000, or set {VARIABLE} where the sweep runs"
            raise SpecError("callbacks.mlflow.tracking_uri", f"is not given, and {VARIABLE} is not set", fix)
        try:
            return _checked(found, "its value")
        except Problem as problem:
            issue = problem.issues[0]
            raise SpecError(VARIABLE, issue.problem, issue.fix) from None


class _Run:
    """A run, and what is to be written to it."""

    def __init__(self, run_id: str, event: str = "", *, has_parent: bool = True) -> None:
        self.run_id = run_id
        self.has_parent = has_parent
        """False: a trial has opened it, which does not know the sweep's run."""
        self.event = event
        """The last event that it holds."""
        self.metrics: list[dict[str, Any]] = []
        self.params: list[dict[str, str]] = []
        self.tags: dict[str, str] = {}
        self.end: dict[str, Any] | None = None
        self.newest = event

    def takes(self, event: str) -> bool:
        """True if an event is new to it; it is from now on the newest."""
        if event <= self.newest:
            return False
        self.newest = event
        return True


class Mlflow(Callback):
    """Buffers events by run, and writes them in `flush`."""

    _retried: ClassVar[str] = "raysweep.attempts"

    def __init__(
        self, server: Server, experiment: str, setup: CallbackSetup, *, is_shared: bool = False
    ) -> None:
        self._server, self._setup, self._is_shared = server, setup, is_shared
        self._experiment = find_experiment(server, experiment)
        self._metrics, self._params, self._tags = (Names("mlflow", _key, MAX_KEY_CHARS) for _ in range(3))
        self._runs: dict[str, _Run] = {}
        self._waiting: dict[str, _Run] = {}
        self._is_unsure = True
        """True if there may be runs that this process does not know of."""
        self._page = ""

    def on_sweep_start(self, event: SweepStart) -> None:
        """The run of the sweep, with its spec as a tag."""
        run = self._run("", event.at)
        if run.takes(event.id):
            run.params += self._params_of(
                {"metric": event.metric, "mode": event.mode, "num_samples": event.num_samples}
            )
            tags = {f"raysweep.tag.{name}": value for name, value in event.tags.items()}
            names = self._tags.of(tags)
            run.tags |= {names[name]: value for name, value in tags.items()}
            run.tags["raysweep.uri"] = event.uri

    def on_trial_start(self, event: TrialStart) -> None:
        """The run of the trial, with its config as parameters; later attempts say their number."""
        run = self._trial(event)
        if run.takes(event.id):
            if not run.event and not run.params:
                run.params += self._params_of(event.config)
            run.tags[self._retried] = str(event.attempt)
            run.tags["raysweep.config"] = orjson.dumps(event.config).decode()

    def on_report(self, event: Report) -> None:
        """The numbers of a report, at its iteration; reports that do not count are left out."""
        run = self._trial(event)
        if run.takes(event.id) and event.counts:
            at, numbers = int(event.at * 1000), numbers_of(event.metrics)
            names = self._metrics.of(numbers)
            run.metrics += [
                {"key": names[name], "value": _number(value), "timestamp": at, "step": event.iteration}
                for name, value in numbers.items()
            ]

    def on_checkpoint(self, event: CheckpointSaved) -> None:
        """Set the address of the newest checkpoint as a tag."""
        run = self._trial(event)
        if run.takes(event.id):
            run.tags["raysweep.checkpoint"] = event.uri

    def on_trial_end(self, event: TrialEnd) -> None:
        """Record the end of the trial."""
        run = self._trial(event)
        if run.takes(event.id):
            run.tags["raysweep.state"] = event.state
            if event.error:
                run.tags["raysweep.error"] = event.error
            run.end = {"status": _STATUS[event.state], "end_time": int(event.at * 1000)}

    def on_sweep_end(self, event: SweepEnd) -> None:
        """Record the end of the sweep, and its best trial."""
        run = self._run("", event.at)
        if run.takes(event.id):
            run.tags |= {"raysweep.status": event.status, "raysweep.why": event.why}
            if event.best_trial is not None:
                run.tags["raysweep.best_trial"] = event.best_trial
                run.tags["raysweep.best_config"] = orjson.dumps(event.best_config).decode()
            if event.best_score is not None:
                at = int(event.at * 1000)
                name = _key(f"best_{self._setup.metric}")
                run.metrics.append({"key": name, "value": event.best_score, "timestamp": at, "step": 0})
            status = {"failed": "FAILED", "cancelled": "KILLED"}.get(event.status, "FINISHED")
            run.end = {"status": status, "end_time": int(event.at * 1000)}

    def flush(self) -> None:
        """Write what waits. What was written is not written again by the next try."""
        for name, run in list(self._waiting.items()):
            # The end comes before the id of its event: with the id there, it would not be written again.
            if run.end is not None:
                self._server.post("runs/update", {"run_id": run.run_id, **run.end})
                run.end = None
            while run.newest != run.event:
                self._write(run)
            del self._waiting[name]

    def close(self) -> None:
        """Close the connection."""
        self._server.close()

    def _params_of(self, values: Mapping[str, Any]) -> list[dict[str, str]]:
        texts = texts_of(values)
        names = self._params.of(texts)
        return [{"key": names[name], "value": text[:MAX_PARAM_CHARS]} for name, text in texts.items()]

    def _write(self, run: _Run) -> None:
        metrics, params = run.metrics[:MAX_METRICS], run.params[:MAX_PARAMS]
        names = list(run.tags)[: MAX_PARAMS - 1]
        is_last = (len(metrics), len(params), len(names)) == (
            len(run.metrics),
            len(run.params),
            len(run.tags),
        )
        tags = {name: run.tags[name] for name in names}
        if is_last:
            tags[_EVENT] = run.newest
        body = {"run_id": run.run_id, "metrics": metrics, "params": params, "tags": _tags(tags)}
        self._server.post("runs/log-batch", body)
        del run.metrics[:MAX_METRICS], run.params[:MAX_PARAMS]
        for name in names:
            del run.tags[name]
        if is_last:
            run.event = run.newest

    def _trial(self, event: TrialRef) -> _Run:
        return self._run(event.trial_id, event.at)

    def _run(self, trial: str, at: float) -> _Run:
        """The run of a trial, or of the sweep (empty); made where there is none."""
        while self._is_unsure:
            # Page by page: what was found stays found, where the next one fails.
            self._find_runs()
        run = self._runs.get(trial)
        if run is None:
            parent = self._run("", at).run_id if trial else ""
            run = self._adopt(trial) if trial and self._is_shared else None
            if run is None:
                self._is_unsure = True  # until the server has answered
                run = self._make_run(trial, parent, at)
                self._is_unsure = False
            self._runs[trial] = run
        if not run.has_parent:
            run.tags |= {_PARENT: self._run("", at).run_id, "mlflow.runName": self._name_of(trial)}
            run.has_parent = True
        self._waiting[trial] = run
        return run

    def _name_of(self, trial: str) -> str:
        return f"{self._setup.name} {trial}" if trial else self._setup.sweep_id

    def _adopt(self, trial: str) -> _Run | None:
        """The run that the trial itself has opened, if any."""
        setup = self._setup
        found = find_run(self._server, self._experiment, setup.sweep_id, setup.begun_at, trial)
        return _Run(found, has_parent=False) if found else None

    def _make_run(self, trial: str, parent: str, at: float) -> _Run:
        tags = tags_of(self._setup.sweep_id, self._setup.begun_at, trial)
        if parent:
            tags[_PARENT] = parent
        body = {
            "experiment_id": self._experiment,
            "run_name": self._name_of(trial),
            "start_time": int(at * 1000),
            "tags": _tags(tags),
        }
        return _Run(self._server.post("runs/create", body)["run"]["info"]["run_id"])

    def _find_runs(self) -> None:
        """Take note of the next page of runs; after the last one, all are known."""
        setup = self._setup
        query: dict[str, Any] = {
            "experiment_ids": [self._experiment],
            "filter": f"tags.`{SWEEP_TAG}` = '{setup.sweep_id}' and tags.`{BEGUN_TAG}` = '{setup.begun_at}'",
            "max_results": 1000,
            "order_by": ["attributes.start_time ASC"],
        }
        answer = self._server.post("runs/search", query | ({"page_token": self._page} if self._page else {}))
        for each in answer.get("runs", ()):
            tags = {tag["key"]: tag["value"] for tag in each.get("data", {}).get("tags", ())}
            trial = tags.get(TRIAL_TAG, "")
            has_parent = trial == "sweep" or _PARENT in tags
            run = _Run(each["info"]["run_id"], tags.get(_EVENT, ""), has_parent=has_parent)
            self._runs.setdefault("" if trial == "sweep" else trial, run)
        self._page = answer.get("next_page_token", "")
        self._is_unsure = bool(self._page)


def _tags(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": _key(name), "value": text[:MAX_TAG_CHARS]} for name, text in tags.items()]


def _key(name: str) -> str:
    """A name as MLflow takes it: letters, digits and `_-. /:`, 250 at most."""
    kept = "".join(char if char.isalnum() or char in "_-. /:" else "_" for char in name)
    return kept.strip("/")[:MAX_KEY_CHARS] or "_"


def _number(value: float) -> float | str:
    """JSON has no NaN: MLflow takes it as a text."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return value
