"""A submitter and a cluster of different releases understand each other, or refuse with the fix."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from raysweep.errors import SpecError, TrainableImportError
from raysweep.jobs.errorline import find_error
from raysweep.jobs.releases import (
    JOB_CONFIG,
    are_near,
    check_submitter,
    explained,
    first_line,
    submitter_version,
)
from raysweep.jobs.request import FILE, FOLDER, JobRequest, RequestOptions
from raysweep.version import __version__

ROOT = Path(__file__).parents[3]


def job_config(version: str) -> str:
    """As Ray hands it to a driver."""
    return json.dumps(
        {"runtime_env": {}, "metadata": {"job_submission_id": "a", "raysweep_version": version}}
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [(job_config("0.7.1"), "0.7.1"), ("", ""), ("{}", ""), ("no JSON", ""), ('{"metadata": null}', "")],
)
def test_the_submitters_version_is_in_the_metadata_of_the_job(text: str, expected: str) -> None:
    assert submitter_version({JOB_CONFIG: text}) == expected
    assert submitter_version({}) == ""


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ("0.2.0", True),
        ("0.1.9", True),
        ("0.3.0", True),
        ("0.4.0", False),
        ("1.2.0", False),
        ("0.2.0rc1", True),
    ],
)
def test_releases_one_minor_version_apart_understand_each_other(other: str, expected: bool) -> None:
    assert are_near("0.2.0", other) is expected
    assert are_near(other, "0.2.0") is expected


def test_a_release_further_away_is_refused_with_the_fix() -> None:
    check_submitter("", "0.2.0")
    check_submitter("0.3.0", "0.2.0")
    with pytest.raises(
        SpecError, match=r"submitted by raysweep 0\.4\.0, and the cluster has raysweep 0\.2\.0"
    ) as no:
        check_submitter("0.4.0", "0.2.0")
    assert (
        no.value.fix
        == "install raysweep 0.4.0 in the cluster's image, or raysweep 0.2.0 where it is submitted"
    )


def test_a_bad_spec_names_the_releases_only_where_they_differ() -> None:
    error = SpecError("search.kind", "unknown field", "remove it")
    assert explained(error, "") is error
    assert explained(error, "0.1.0", "0.1.0") is error
    other = TrainableImportError("trainable", "no module", "install it")
    assert explained(other, "0.2.0", "0.1.0") is other, "that is not about the release"
    said = explained(error, "0.2.0", "0.1.0")
    assert isinstance(said, SpecError)
    assert (said.field, "by raysweep 0.2.0" in said.problem) == ("search.kind", True)
    assert said.fix.startswith("remove it; or install raysweep 0.2.0")


def test_the_first_line_has_the_versions_and_what_was_not_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    assert first_line("").startswith(f"raysweep {__version__}, Ray ")
    assert "submitted" not in first_line(__version__)
    assert "submitted by raysweep 0.9.0" in first_line("0.9.0")
    monkeypatch.setattr(
        "raysweep.tested.installed", lambda package: "2.99.0" if package == "ray" else "3.3.0"
    )
    assert "Ray 2.99.0 was not tested with this raysweep" in first_line("")


def test_a_request_sends_only_options_that_are_not_their_default() -> None:
    """An older driver refuses fields that it does not know."""
    request = JobRequest(kind="sweep", key="k", spec={"name": "t"})
    assert json.loads(request.to_json())["options"] == {}
    taken = request.model_copy(update={"options": RequestOptions(takeover=True)})
    assert json.loads(taken.to_json())["options"] == {"takeover": True}
    assert JobRequest.from_json(taken.to_json()) == taken


@pytest.mark.parametrize(
    ("submitter", "options", "expected"),
    [
        ("0.9.0", {}, "more than one release apart"),
        ("0.2.0", {"newer": 1}, "submitted by raysweep 0.2.0"),
    ],
)
def test_a_driver_of_another_release_says_so_before_it_starts_anything(
    tmp_path: Path, submitter: str, options: dict[str, object], expected: str
) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir()
    request = json.loads(JobRequest(kind="sweep", key="k", spec={"name": "t"}).to_json())
    (folder / FILE).write_text(json.dumps(request | {"options": options}))
    given = {
        JOB_CONFIG: job_config(submitter),
        "PYTHONPATH": str(tmp_path),
        "RAY_ADDRESS": "",
    }
    ran = subprocess.run(
        [sys.executable, "-m", "raysweep.jobs.driver"],
        cwd=ROOT, env=os.environ | given, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ran.returncode == 2
    assert f"submitted by raysweep {submitter}" in ran.stdout.splitlines()[0]
    record = find_error(ran.stderr)
    assert record is not None
    assert expected in record["message"]
    assert f"install raysweep {submitter} in the cluster's image" in record["message"]
