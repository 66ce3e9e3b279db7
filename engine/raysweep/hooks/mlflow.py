"""`mlflow`: a run for the sweep and one below it for each trial, by MLflow's REST API.

No package of MLflow's is needed. Each write to a run also writes the tag `raysweep.event`, the id of the last
event in it. After a resume the runs are found by their tags, and events up to that id are left out: nothing
is stored twice.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final
from urllib.parse import urlsplit

import orjson
from pydantic import AfterValidator, Field

from raysweep.documents.validation import Problem
from raysweep.errors import SpecError
from raysweep.hooks.base import CallbackOptions, CallbackSetup, SinkDownError
from raysweep.hooks.events import (
    CheckpointSaved,
    Report,
    SweepEnd,
    SweepStart,
    TrialEnd,
    TrialRef,
    TrialStart,
)
from raysweep.hooks.numbers import flat, numbers_of, texts_of

if TYPE_CHECKING:
    import httpx

VARIABLE: Final = "MLFLOW_TRACKING_URI"
MAX_METRICS: Final = 900
"""Metrics in one `log-batch`; MLflow takes 1,000 entities, of which 100 parameters and 100 tags."""
MAX_PARAMS: Final = 100
MAX_PARAM_CHARS: Final = 500
MAX_TAG_CHARS: Final = 5000
MAX_KEY_CHARS: Final = 250
_EVENT: Final = "raysweep.event"
_SWEEP: Final = "raysweep.sweep_id"
_BEGUN: Final = "raysweep.begun_at"
_TRIAL: Final = "raysweep.trial_id"
_TIMEOUT_S: Final = 30.0
_PASSING: Final = frozenset({408, 425, 429})
_NOT_FOUND: Final = "RESOURCE_DOES_NOT_EXIST"
_STATUS: Final = {"completed": "FINISHED", "stopped": "FINISHED", "failed": "FAILED", "cancelled": "KILLED"}


def check_address(uri: str) -> str:
    """The address of a server. Raises: Problem."""
    parts = urlsplit(uri)
    if parts.username or parts.password:
        fix = "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
        raise Problem("has credentials in it, and would be stored", fix)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Problem(f"{uri!r} is no web address", "write http://host:5000, the address of an MLflow server")
    return uri.rstrip("/")


class MlflowOptions(CallbackOptions):
    """Runs on an MLflow server. Credentials come from MLflow's own environment variables."""

    tracking_uri: Annotated[str, AfterValidator(check_address)] | None = None
    """The server, `http://host:5000`; default: the variable MLFLOW_TRACKING_URI where the sweep runs."""
    experiment: Annotated[str, Field(min_length=1)] | None = None
    """The experiment, made where there is none; default: MLFLOW_EXPERIMENT_NAME, or the sweep's name."""

    def check(self, storage_path: str) -> None:
        """See that there is an address. Raises: SpecError."""
        _ = self.address

    def make(self, setup: CallbackSetup) -> Mlflow:
        """The callback. Raises: SinkDownError."""
        experiment = self.experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or setup.name
        return Mlflow(Server(self.address), experiment, setup)

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
            return check_address(found)
        except Problem as problem:
            issue = problem.issues[0]
            raise SpecError(VARIABLE, issue.problem.replace(found, "its value"), issue.fix) from None


class Server:
    """The REST API of one MLflow server."""

    def __init__(self, address: str) -> None:
        import httpx

        self._host = urlsplit(address).hostname
        token, user = os.environ.get("MLFLOW_TRACKING_TOKEN"), os.environ.get("MLFLOW_TRACKING_USERNAME")
        auth = (user, os.environ.get("MLFLOW_TRACKING_PASSWORD", "")) if user and not token else None
        self._client: httpx.Client = httpx.Client(
            base_url=f"{address}/api/2.0/mlflow/",
            timeout=_TIMEOUT_S,
            auth=auth,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            verify=os.environ.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() not in ("1", "true"),
        )

    def get(self, path: str, **params: str) -> dict[str, Any] | None:
        """None: there is no such thing. Raises: SinkDownError, ValueError."""
        return self._send("GET", path, params=params)

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Raises: SinkDownError, ValueError."""
        answer = self._send(
            "POST", path, content=orjson.dumps(body), headers={"Content-Type": "application/json"}
        )
        if answer is None:
            raise ValueError(f"MLflow at {self._host}: {path} names something that is gone")
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _send(self, method: str, path: str, **parts: Any) -> dict[str, Any] | None:
        try:
            answer = self._client.request(method, path, **parts)
        except Exception as error:
            raise SinkDownError(f"MLflow at {self._host} does not answer: {type(error).__name__}") from error
        if answer.status_code >= 500 or answer.status_code in _PASSING:
            raise SinkDownError(f"MLflow at {self._host} answers {answer.status_code} to {path}")
        try:
            found = orjson.loads(answer.content or b"{}")
        except orjson.JSONDecodeError:
            found = None
        if answer.status_code == 404 and isinstance(found, dict) and found.get("error_code") == _NOT_FOUND:
            return None
        if not answer.is_success or not isinstance(found, dict):
            said = found.get("message", "") if isinstance(found, dict) else ""
            problem = f"MLflow at {self._host} answers {answer.status_code} to {path}: {str(said)[:200]}"
            # Credentials that are wrong now may be mended while the sweep runs.
            raise SinkDownError(problem) if answer.status_code in (401, 403) else ValueError(problem)
        return found


class _Run:
    """A run, and what is to be written to it."""

    def __init__(self, run_id: str, event: str = "") -> None:
        self.run_id = run_id
        self.event = event
        """The last event that it holds."""
        self.metrics: list[dict[str, Any]] = []
        self.params: list[dict[str, str]] = []
        self.tags: dict[str, str] = {}
        self.end: dict[str, Any] | None = None
        self.newest = event

    def takes(self, event: str) -> bool:
        """Whether an event is new to it; it is from now on the newest."""
        if event <= self.newest:
            return False
        self.newest = event
        return True


class Mlflow:
    """Buffers events by run, and writes them in `flush`."""

    _retried: ClassVar[str] = "raysweep.attempts"

    def __init__(self, server: Server, experiment: str, setup: CallbackSetup) -> None:
        self._server, self._setup = server, setup
        self._experiment = self._find_experiment(experiment)
        self._runs: dict[str, _Run] = {}
        self._waiting: dict[str, _Run] = {}
        self._is_unsure = True
        """Whether there may be runs that this process does not know of."""
        self._page = ""

    def on_sweep_start(self, event: SweepStart) -> None:
        """The run of the sweep, with its spec as a tag."""
        run = self._run("", event.at)
        if run.takes(event.id):
            run.params += _params(
                {"metric": event.metric, "mode": event.mode, "num_samples": event.num_samples}
            )
            run.tags |= {f"raysweep.tag.{name}": value for name, value in event.tags.items()}
            run.tags["raysweep.uri"] = event.uri

    def on_trial_start(self, event: TrialStart) -> None:
        """The run of the trial, with its config as parameters; later attempts say their number."""
        run = self._trial(event)
        if run.takes(event.id):
            if not run.event and not run.params:
                run.params += _params(event.config)
            run.tags[self._retried] = str(event.attempt)
            run.tags["raysweep.config"] = orjson.dumps(event.config).decode()

    def on_report(self, event: Report) -> None:
        """The numbers of a report, at its iteration; reports that do not count are left out."""
        run = self._trial(event)
        if run.takes(event.id) and event.counts:
            at = int(event.at * 1000)
            run.metrics += [
                {"key": _key(name), "value": _number(value), "timestamp": at, "step": event.iteration}
                for name, value in numbers_of(event.metrics).items()
            ]

    def on_checkpoint(self, event: CheckpointSaved) -> None:
        """Where the newest checkpoint is, as a tag."""
        run = self._trial(event)
        if run.takes(event.id):
            run.tags["raysweep.checkpoint"] = event.uri

    def on_trial_end(self, event: TrialEnd) -> None:
        """How it ended."""
        run = self._trial(event)
        if run.takes(event.id):
            run.tags["raysweep.state"] = event.state
            if event.error:
                run.tags["raysweep.error"] = event.error
            run.end = {"status": _STATUS[event.state], "end_time": int(event.at * 1000)}

    def on_sweep_end(self, event: SweepEnd) -> None:
        """How the sweep ended, and its best trial."""
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
            self._is_unsure = True  # until the server has answered
            run = self._runs[trial] = self._make_run(trial, parent, at)
            self._is_unsure = False
        self._waiting[trial] = run
        return run

    def _make_run(self, trial: str, parent: str, at: float) -> _Run:
        name = f"{self._setup.name} {trial}" if trial else self._setup.sweep_id
        tags = {
            _SWEEP: self._setup.sweep_id,
            _BEGUN: str(self._setup.begun_at),
            _TRIAL: trial or "sweep",
            "mlflow.source.name": "raysweep",
        }
        if parent:
            tags["mlflow.parentRunId"] = parent
        body = {
            "experiment_id": self._experiment,
            "run_name": name,
            "start_time": int(at * 1000),
            "tags": _tags(tags),
        }
        return _Run(self._server.post("runs/create", body)["run"]["info"]["run_id"])

    def _find_runs(self) -> None:
        """Take note of the next page of runs; after the last one, all are known."""
        setup = self._setup
        query: dict[str, Any] = {
            "experiment_ids": [self._experiment],
            "filter": f"tags.`{_SWEEP}` = '{setup.sweep_id}' and tags.`{_BEGUN}` = '{setup.begun_at}'",
            "max_results": 1000,
            "order_by": ["attributes.start_time ASC"],
        }
        answer = self._server.post("runs/search", query | ({"page_token": self._page} if self._page else {}))
        for each in answer.get("runs", ()):
            tags = {tag["key"]: tag["value"] for tag in each.get("data", {}).get("tags", ())}
            trial = tags.get(_TRIAL, "")
            run = _Run(each["info"]["run_id"], tags.get(_EVENT, ""))
            self._runs.setdefault("" if trial == "sweep" else trial, run)
        self._page = answer.get("next_page_token", "")
        self._is_unsure = bool(self._page)

    def _find_experiment(self, name: str) -> str:
        found = self._server.get("experiments/get-by-name", experiment_name=name)
        if found is not None:
            return str(found["experiment"]["experiment_id"])
        try:
            return str(self._server.post("experiments/create", {"name": name})["experiment_id"])
        except ValueError as error:  # another sweep made it at this moment
            found = self._server.get("experiments/get-by-name", experiment_name=name)
            if found is None:
                raise error
            return str(found["experiment"]["experiment_id"])


def _params(values: Mapping[str, Any]) -> list[dict[str, str]]:
    texts = texts_of(flat(values))
    return [{"key": _key(name), "value": text[:MAX_PARAM_CHARS]} for name, text in texts.items()]


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
