"""Flow runs of sweeps on a Prefect server."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

from devtools.prefect.local import LocalPrefect
from tests.orchestrators.nights import HERE
from tests.orchestrators.prefect import ask_patiently


def spec(log: Path, tmp_path: Path, **fields: Any) -> dict[str, Any]:
    return {
        "name": "night",
        "trainable": f"{HERE}:trial",
        "param_space": {"x": {"uniform": [0, 1]}, "pause": 0.5, "log": str(log)},
        "metric": "loss",
        "mode": "min",
        "search": "random",
        "seed": 7,
        "storage_path": str(tmp_path / "sweeps"),
        **fields,
    }


def create(servers: LocalPrefect, deployment: str, parameters: dict[str, Any]) -> str:
    path = f"/deployments/{deployment}/create_flow_run"
    asked = {"parameters": parameters, "idempotency_key": uuid4().hex}
    return str(ask_patiently(servers, "POST", path, asked)["id"])
