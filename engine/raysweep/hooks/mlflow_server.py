"""The REST API of an MLflow server, and the runs that trials open before the tracker knows of them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import orjson

from raysweep.hooks.base import SinkDownError

if TYPE_CHECKING:
    import httpx

SWEEP_TAG: Final = "raysweep.sweep_id"
BEGUN_TAG: Final = "raysweep.begun_at"
TRIAL_TAG: Final = "raysweep.trial_id"
TIMEOUT_S: Final = 30.0
IN_TRIAL_TIMEOUT_S: Final = 5.0
"""The longest wait of a trial's start for each answer, before it begins without a run."""
_PASSING: Final = frozenset({408, 425, 429})
_NOT_FOUND: Final = "RESOURCE_DOES_NOT_EXIST"


class Server:
    """The REST API of one MLflow server."""

    def __init__(self, address: str, timeout_s: float = TIMEOUT_S) -> None:
        import httpx

        self._host = urlsplit(address).hostname
        token, user = os.environ.get("MLFLOW_TRACKING_TOKEN"), os.environ.get("MLFLOW_TRACKING_USERNAME")
        auth = (user, os.environ.get("MLFLOW_TRACKING_PASSWORD", "")) if user and not token else None
        self._client: httpx.Client = httpx.Client(
            base_url=f"{address}/api/2.0/mlflow/",
            timeout=timeout_s,
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


def find_experiment(server: Server, name: str) -> str:
    """The id of an experiment, which is made where there is none. Raises: SinkDownError, ValueError."""
    found = server.get("experiments/get-by-name", experiment_name=name)
    if found is not None:
        return str(found["experiment"]["experiment_id"])
    try:
        return str(server.post("experiments/create", {"name": name})["experiment_id"])
    except ValueError as error:  # another process made it at this moment
        found = server.get("experiments/get-by-name", experiment_name=name)
        if found is None:
            raise error
        return str(found["experiment"]["experiment_id"])


def tags_of(sweep_id: str, begun_at: float, trial: str) -> dict[str, str]:
    """The tags by which a run is found again. `trial`: empty for the run of the sweep."""
    return {
        SWEEP_TAG: sweep_id,
        BEGUN_TAG: str(begun_at),
        TRIAL_TAG: trial or "sweep",
        "mlflow.source.name": "raysweep",
    }


def find_run(server: Server, experiment: str, sweep_id: str, begun_at: float, trial: str) -> str:
    """The id of a trial's run; empty: there is none. Raises: SinkDownError, ValueError."""
    wanted = {SWEEP_TAG: sweep_id, BEGUN_TAG: str(begun_at), TRIAL_TAG: trial}
    query = {
        "experiment_ids": [experiment],
        "filter": " and ".join(f"tags.`{name}` = '{value}'" for name, value in wanted.items()),
        "max_results": 1,
        "order_by": ["attributes.start_time ASC"],
    }
    runs = server.post("runs/search", query).get("runs", ())
    return str(runs[0]["info"]["run_id"]) if runs else ""


def open_run(variables: Mapping[str, str], sweep_id: str, begun_at: float, trial: str) -> dict[str, str]:
    """In a trial's process, before it begins: its run, which is made where there is none.

    Raises: SinkDownError, ValueError.
    """
    server = Server(variables["MLFLOW_TRACKING_URI"], IN_TRIAL_TIMEOUT_S)
    try:
        experiment = find_experiment(server, variables["MLFLOW_EXPERIMENT_NAME"])
        found = find_run(server, experiment, sweep_id, begun_at, trial)
        if not found:
            body = {
                "experiment_id": experiment,
                "run_name": f"{sweep_id} {trial}",
                "start_time": int(time.time() * 1000),
                "tags": [
                    {"key": name, "value": text} for name, text in tags_of(sweep_id, begun_at, trial).items()
                ],
            }
            found = str(server.post("runs/create", body)["run"]["info"]["run_id"])
    finally:
        server.close()
    return {"MLFLOW_RUN_ID": found}
