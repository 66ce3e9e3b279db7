"""raysweep as users install it: from the wheel, with its extras, the newest of everything, no constraints.

Needs an index of packages; without one these tests fail and say so.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from email import message_from_string
from pathlib import Path

import pytest

TIMEOUT_S = 900
ROOT = Path(__file__).parents[2]
PATIENCE = "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"
CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
QUICKSTART = """
import raysweep as rs

def train(config):
    return (config["x"] - 2) ** 2

if __name__ == "__main__":
    spec = rs.SweepSpec(
        name="quickstart", trainable=train, param_space={"x": {"uniform": [0, 4]}}, metric="loss", mode="min",
        num_samples=4, seed=1, search="tpe", storage_path="store",
    )
    outcome = rs.run_sweep(spec, key="first", num_cpus=2)
    print(outcome.status, len(outcome), sum(1 for _ in outcome.reports()))
"""
BROKEN = QUICKSTART.replace('return (config["x"] - 2) ** 2', 'return config["rate"]').replace(
    "first", "second"
)
FLOW = """
from prefect import flow, task

import raysweep_prefect

@task
def number():
    return 42

@flow
def night():
    return number()

print("gave", night(), raysweep_prefect.__name__)
"""

LOOK = """
from airflow.providers_manager import ProvidersManager

import raysweep_airflow
from raysweep_airflow.page.app import make_app

print(make_app().title, *[name for name in ProvidersManager().providers if name == "raysweep"])
"""

pytestmark = [pytest.mark.servers, pytest.mark.timeout(1200)]


def settings() -> dict[str, str]:
    """What uv needs to know besides: pip's index, and the system's certificates."""
    found = {"UV_SYSTEM_CERTS": "1"} if any(map(os.path.exists, CERTIFICATES)) else {}
    index = os.environ.get("PIP_INDEX_URL")
    return found | ({"UV_DEFAULT_INDEX": index} if index else {}) | dict(os.environ)


def call(*command: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """What a command prints. It has to succeed."""
    environment = {**(env or os.environ)}
    for name in ("PYTHONPATH", "VIRTUAL_ENV", "RAY_ADDRESS"):
        environment.pop(name, None)
    ran = subprocess.run(
        [str(part) for part in command],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, f"{command}\n{ran.stdout[-3000:]}\n{ran.stderr[-5000:]}"
    return ran.stdout


@pytest.fixture(scope="session")
def uv() -> Path:
    return Path(sys.executable).with_name("uv")


@pytest.fixture(scope="session")
def wheel(uv: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    call(uv, "build", "--quiet", "--wheel", "--out-dir", folder, ROOT, cwd=folder, env=settings())
    (made,) = folder.glob("*.whl")
    return made


Install = Callable[[str], Path]


@pytest.fixture
def install(uv: Path, wheel: Path, tmp_path: Path) -> Install:
    """extras -> the folder of commands of a new environment that has them."""

    def make(extras: str) -> Path:
        folder = tmp_path / "venv"
        call(uv, "venv", "--quiet", "--python", sys.executable, folder, cwd=tmp_path, env=settings())
        python = folder / "bin/python"
        what = f"raysweep[{extras}] @ {wheel.as_uri()}"
        call(uv, "pip", "install", "--quiet", "--python", python, what, cwd=tmp_path, env=settings())
        return python.parent

    return make


def test_the_page_on_an_index(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        metadata = message_from_string(archive.read(name).decode())
    assert metadata["Description-Content-Type"] == "text/markdown"
    page = metadata.get_payload()
    assert isinstance(page, str)
    assert page.startswith("# raysweep\n")
    assert "](docs/" not in page, "such links lead nowhere there"
    assert "](CHANGELOG.md)" not in page
    assert metadata.get_all("Provides-Extra")


@pytest.mark.slow
@pytest.mark.ray
def test_the_engine_and_prefect_as_users_install_them(install: Install, tmp_path: Path) -> None:
    """A sweep on a Ray of its own, and a flow without a server: Prefect starts its own for it."""
    began = time.monotonic()
    commands = install("ray,prefect")
    print(f"installed after {time.monotonic() - began:.0f} s")
    (tmp_path / "quickstart.py").write_text(QUICKSTART)
    (tmp_path / "broken.py").write_text(BROKEN)
    (tmp_path / "flow.py").write_text(FLOW)
    home = {"HOME": str(tmp_path), "PREFECT_HOME": str(tmp_path / "prefect")}
    env = dict(os.environ) | home | {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", PATIENCE: "300"}
    assert call(commands / "python", "quickstart.py", cwd=tmp_path, env=env).endswith("completed 4 4\n")
    assert call(commands / "raysweep", "best", "quickstart", "--storage", "store", cwd=tmp_path, env=env)
    print(f"the first result after {time.monotonic() - began:.0f} s")
    assert call(commands / "python", "broken.py", cwd=tmp_path, env=env).startswith("failed ")
    named = ("--name", "quickstart", "--key", "second", "--storage", "store")
    said = call(commands / "raysweep", "status", *named, cwd=tmp_path, env=env)
    for word in ("KeyError: 'rate'", "broken.py:5 in train", "raysweep trials quickstart-"):
        assert word in said, said
    print(f"the first failure understood after {time.monotonic() - began:.0f} s")
    assert call(commands / "python", "flow.py", cwd=tmp_path, env=env).endswith("gave 42 raysweep_prefect\n")


def test_airflow_as_users_install_it(install: Install, tmp_path: Path) -> None:
    """Airflow finds the provider, its connection and its page."""
    commands = install("airflow")
    env = dict(os.environ) | {"HOME": str(tmp_path), "AIRFLOW_HOME": str(tmp_path / "airflow")}
    (tmp_path / "look.py").write_text(LOOK)
    assert call(commands / "python", "look.py", cwd=tmp_path, env=env).endswith("raysweep raysweep\n")
