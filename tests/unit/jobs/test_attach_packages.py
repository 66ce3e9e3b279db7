"""What is sent along with a job: code, environment, secrets."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from raysweep import errors
from raysweep.jobs import JobOptions, RunningJob
from raysweep.jobs.client import JobsClient
from raysweep.specs import SweepSpec
from tests.unit.jobs.api import Api, serving
from tests.unit.jobs.attaching import SECRET, quick, spec, submit

__all__ = ["quick", "spec"]


def test_a_working_dir_goes_over_the_wire_once(spec: SweepSpec, tmp_path: Path, caplog: Any) -> None:
    code = tmp_path / "code"
    (code / ".git").mkdir(parents=True)
    (code / "m.py").write_text("def f(config): ...\n")
    (code / ".env").write_text("PASSWORD=x\n")
    (code / ".git/config").write_text("x")
    caplog.set_level(logging.INFO, "raysweep.jobs")
    with serving(Api()) as api:
        job = submit(api, spec, working_dir=code)
        api.end(job.job_id, "FAILED")
        again = submit(api, spec, working_dir=code)
        assert again.number == 2
        first, second = (api.jobs[each.job_id]["runtime_env"] for each in (job, again))
        assert first["working_dir"] == second["working_dir"]
        # The code and the request, once each; the second submission has the same request, too.
        assert api.count("PUT", "/api/packages/") == 2
    assert ".env (may hold secrets)" in job.left_out
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [text for text in warnings if ".env (may hold secrets)" in text and ".git" not in text]


def test_what_is_left_out_is_said_in_a_few_lines(spec: SweepSpec, tmp_path: Path) -> None:
    """The handle of the job goes through triggers, events and databases: three thousand files were 129 KB."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "m.py").write_text("def f(config): ...\n")
    (code / ".gitignore").write_text("*.log\n")
    for number in range(3000):
        (code / f"{'long' * 10}-{number}.log").touch()
    (code / "zz.pem").write_text("x")
    with serving(Api()) as api:
        job = submit(api, spec, working_dir=code)
    assert len(json.dumps(job.to_dict())) < 10_000
    assert job.left_out[0] == "zz.pem (may hold secrets)"
    assert job.left_out[-1] == "… and 2952 more"
    assert len(job.left_out) == 50


def test_secrets_reach_the_job_and_nothing_else(spec: SweepSpec, tmp_path: Path, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    options = {"env_vars": {"PASSWORD": SECRET, "OTHER": SecretStr("another-one")}, "lease_ttl_s": 60.0}
    with serving(Api()) as api:
        job = submit(api, spec, **options)
        sent = api.jobs[job.job_id]
        assert sent["runtime_env"]["env_vars"] == {"PASSWORD": SECRET, "OTHER": "another-one"}
        info = asyncio.run(_info(api, job))
        api.end(job.job_id, "FAILED", code=1, log=f"the user's code printed {SECRET}\n")
        kept = [
            *(repr(each) for each in (job, info, JobOptions(**options))),  # type: ignore[arg-type]
            *(repr(data) for data in api.packages.values()),
            *(path.read_text() for path in (tmp_path / "sweeps").rglob("*") if path.is_file()),
            json.dumps(sent["metadata"]),
            sent["entrypoint"],
            caplog.text,
        ]
    for secret in (SECRET, "another-one"):
        assert not [text for text in kept if secret in text]
    assert list((tmp_path / "sweeps").rglob("lease.json"))


async def _info(api: Api, job: RunningJob) -> Any:
    async with JobsClient(api.address) as client:
        return await client.info(job.job_id)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"env_vars": {"A": 5}}, "env_vars.A"),
        ({"env_vars": {"A=B": SECRET}}, "env_vars"),
        ({"env_vars": {"A": SECRET * 6000}}, "env_vars.A"),
        ({"runtime_env": {"env_vars": {"A": SECRET}}}, "runtime_env.env_vars"),
        ({"runtime_env": {"pip": object()}}, "runtime_env.pip"),
        ({"lease_ttl_s": 1}, "lease_ttl_s"),
        ({"resume_cancelled": "perhaps"}, "resume_cancelled"),
        ({"metadata": {"a": 1}}, "metadata.a"),
    ],
)
def test_options_are_checked_and_show_no_values(options: dict[str, Any], named: str) -> None:
    with pytest.raises(errors.SpecError) as caught:
        JobOptions(**options)
    assert caught.value.field == named
    assert SECRET not in str(caught.value)


def test_a_job_gets_the_trace_of_its_submission_where_the_sweep_makes_one(
    spec: SweepSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    monkeypatch.setenv("TRACEPARENT", traceparent)
    traced = spec.replace(name="traced", callbacks=["otel"])
    with serving(Api()) as api:
        plain, job = submit(api, spec), submit(api, traced)
        assert "env_vars" not in api.jobs[plain.job_id]["runtime_env"]
        assert api.jobs[job.job_id]["runtime_env"]["env_vars"] == {"TRACEPARENT": traceparent}
