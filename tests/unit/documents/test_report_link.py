"""Where the report of a sweep is said to be."""

from __future__ import annotations

import pytest

from raysweep.documents.report_link import DASHBOARD_VARIABLE, report_place, report_url
from raysweep.errors import SpecError


def test_without_a_dashboard_the_command_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DASHBOARD_VARIABLE, raising=False)
    assert report_url("night-1") == ""
    assert report_place("night-1", "/my sweeps") == "raysweep report night-1 --storage '/my sweeps' --open"


@pytest.mark.parametrize("address", ["https://sweeps.example/", "https://sweeps.example"])
def test_a_dashboard_that_is_named_has_its_page(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv(DASHBOARD_VARIABLE, address)
    assert report_place("night-1", "s3://b") == "https://sweeps.example/run/night-1"


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("javascript:alert(1)", "'javascript:alert(1)' is not a web address"),
        ("sweeps.example", "is not a web address"),
        ("https://", "is not a web address"),
        ("https://me:s3cret@host/", "a user, a query or a fragment"),
        ("https://host/?token=s3cret", "a user, a query or a fragment"),
    ],
)
def test_a_bad_address_is_refused_and_never_shown_as_a_link(
    monkeypatch: pytest.MonkeyPatch, address: str, problem: str
) -> None:
    monkeypatch.setenv(DASHBOARD_VARIABLE, address)
    with pytest.raises(SpecError, match=DASHBOARD_VARIABLE) as caught:
        report_url("night-1")
    assert problem in str(caught.value).replace("\n", " ")
    assert "s3cret" not in str(caught.value)
    assert report_place("night-1", "s3://b").startswith("raysweep report ")
