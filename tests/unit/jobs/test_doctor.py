"""What the doctor reports about versions: the cluster's Ray and raysweep, and the orchestrator here."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from raysweep import tested
from raysweep.jobs.checks import PROBE_ENTRYPOINT, Check
from raysweep.jobs.client import JobsClient
from raysweep.jobs.doctor import _check_cluster, _check_versions, _explain
from raysweep.jobs.wire import JobInfo
from tests.unit.jobs.api import Api, serving


def checks_of(ray_version: str) -> dict[str, Check]:
    async def look(address: str) -> list[Check]:
        async with JobsClient(address) as client:
            return await _check_cluster(client)

    with serving(Api(ray_version=ray_version)) as api:
        return {check.name: check for check in asyncio.run(look(api.address))}


def test_a_ray_that_was_not_tested_is_reported_and_does_not_fail() -> None:
    lowest, highest = tested.RANGES["ray"]
    assert checks_of(f"{highest}.1")["Ray"].status == "ok"
    found = checks_of("2.99.1")["Ray"]
    assert found.status == "untested"
    assert f"Ray 2.99.1 was not tested with this raysweep ({lowest} to {highest} were)" in found.detail
    assert "docs/versions.md" in found.fix


def test_an_orchestrator_that_was_not_tested_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    highest = tested.RANGES["ray"][1]
    assert "installed here" not in checks_of(highest)
    installed = {
        "ray": f"{highest}.0",
        "apache-airflow": "3.99.0",
        "prefect": f"{tested.RANGES['prefect'][1]}.0",
    }
    monkeypatch.setattr(tested, "installed", installed.__getitem__)
    found = checks_of(highest)["installed here"]
    assert found.status == "untested"
    assert found.detail.startswith("Airflow 3.99.0 was not tested")


@pytest.mark.parametrize(
    ("there", "status", "said"),
    [
        ("0.2.0", "ok", ""),
        ("0.1.0", "ok", "one release apart"),
        ("0.4.0", "failed", "more than one release apart"),
    ],
)
def test_another_raysweep_on_the_cluster(
    monkeypatch: pytest.MonkeyPatch, there: str, status: str, said: str
) -> None:
    monkeypatch.setattr("raysweep.version.__version__", "0.2.0")
    found = _check_versions({"raysweep": there, "python": "3.11.7", "ray": "2.60.0"})
    assert (found.status, said in found.detail) == (status, True)
    if status == "failed":
        assert (
            found.fix
            == "install raysweep 0.2.0 in the cluster's image, or raysweep 0.4.0 where it is submitted"
        )


def test_a_python_without_raysweep_is_named(tmp_path: Path) -> None:
    """The real entrypoint, where the first `python` of PATH is another than that of this environment."""
    (tmp_path / "python").symlink_to(Path(sys._base_executable).resolve())  # type: ignore[attr-defined]
    ran = subprocess.run(
        PROBE_ENTRYPOINT, shell=True, capture_output=True, text=True, check=False,
        env={"PATH": str(tmp_path)},
    )  # fmt: skip
    assert ran.returncode == 1
    info = JobInfo(job_id="doctor-1", status="FAILED", message="exit code 1")
    found = _explain(info, ran.stdout + ran.stderr)
    version = ".".join(map(str, sys.version_info[:2]))
    assert found.status == "failed"
    assert f"not installed for the job's `python`, {tmp_path}/python (Python {version})" in found.detail
    assert "first on PATH" in found.fix
