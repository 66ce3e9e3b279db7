"""One Airflow for all tests of the provider."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.airflow.servers import Airflow
from tests.jobs.head import Head

# Airflow reads its settings when it is imported, also into the tests' own process.
if "AIRFLOW_HOME" not in os.environ:
    _home = tempfile.mkdtemp(prefix="raysweep-airflow-")
    os.environ["AIRFLOW_HOME"] = _home
    atexit.register(shutil.rmtree, _home, ignore_errors=True)
os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "False")

DAGS = Path(__file__).parent / "dags"


@pytest.fixture(scope="package")
def airflow(running_head: Head, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    """Airflow with one worker slot, the DAGs of `tests/airflow/dags`, and the head as `raysweep_default`."""
    home, vault = tmp_path_factory.mktemp("airflow"), tmp_path_factory.mktemp("vault")
    secrets = {
        "AIRFLOW__SECRETS__BACKEND": "tests.airflow.vault.Vault",
        "AIRFLOW__SECRETS__BACKEND_KWARGS": json.dumps({"folder": str(vault)}),
    }
    with Airflow(home, dags=DAGS, parallelism=1, environment=secrets) as servers:
        servers.vault = vault
        connect(servers, running_head)
        yield servers


def connect(servers: Airflow, head: Head, conn_id: str = "raysweep_default") -> None:
    """Make the connection to a head."""
    servers.add_connection(
        conn_id,
        conn_type="raysweep",
        host="http://127.0.0.1",
        port=head.dashboard_port,
        password=head.token,
    )
