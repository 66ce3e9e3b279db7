"""The versions that are promised are those that were tested: results, page, ranges and requirements agree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from devtools.versions import pages, results
from devtools.versions.cells import CELLS, CORE
from devtools.versions.running import read_report
from raysweep import tested
from raysweep.tested.ranges import RANGES

ROOT = Path(__file__).parents[2]
PASSED = {"result": "passed", "passed": 1, "skipped": 0, "failed": [], "seconds": 1.0}


def test_the_page_and_the_ranges_are_made_of_the_results() -> None:
    kept = results.read()
    advice = "run python -m devtools.versions --page"
    assert pages.PAGE.read_text() == pages.page(kept, pages.GAPS.read_text()), advice
    assert pages.RANGES.read_text() == pages.module(results.ranges(kept)), advice
    assert dict(RANGES) == results.ranges(kept)


@pytest.mark.parametrize("product", ["ray", "airflow", "prefect"])
def test_no_version_below_the_tested_ones_is_allowed(product: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    name = tested.PACKAGES[product]
    found = [
        re.search(r">=(\d+\.\d+)", each)
        for each in project["optional-dependencies"][product]
        if re.match(rf"{name}\b", each)
    ]
    assert [each[1] for each in found if each] == [RANGES[product][0]]


def test_each_cell_has_the_parts_that_count() -> None:
    assert len({cell.name for cell in CELLS}) == len(CELLS)
    for cell in CELLS:
        assert set(CORE[cell.product]) <= set(cell.sample), cell.name
        for arguments in cell.sample.values():
            files = [each.split("::")[0] for each in arguments if each.startswith("tests/")]
            assert [each for each in files if not (ROOT / each).exists()] == []


def result_of(cell: Any, **parts: dict[str, Any]) -> dict[str, Any]:
    made = dict.fromkeys(cell.sample, PASSED) | parts
    return {"version": cell.version, "date": "d", "python": "3", "problem": "", "packages": {}, "parts": made}


def test_a_version_counts_once_its_core_parts_passed_and_what_was_not_run_is_said() -> None:
    cell = next(cell for cell in CELLS if cell.product == "ray")
    failed = PASSED | {"result": "failed", "failed": ["t"]}
    assert results.is_tested(cell, result_of(cell))
    assert results.is_tested(cell, result_of(cell, contracts=failed)), "an old Ray may lack a part"
    assert not results.is_tested(cell, result_of(cell, sweeps=failed))
    assert not results.is_tested(cell, None)
    assert not results.is_tested(cell, result_of(cell) | {"problem": "no wheel"})
    shown = pages.table("ray", {cell.name: result_of(cell, gangs=failed)})
    assert f"| {cell.version} (not tested) |" in shown
    assert "| 1 failed, 1 passed |" in shown
    assert shown.count("not run") == sum(len(each.sample) for each in CELLS if each.product == "ray") - len(
        cell.sample
    )


def test_a_report_of_pytest_is_read(tmp_path: Path) -> None:
    assert read_report(tmp_path / "none.xml", 1.0).failed == ["pytest did not start"]
    report = tmp_path / "r.xml"
    cases = (
        '<testcase name="a"/><testcase name="b"><skipped/></testcase><testcase name="c"><error/></testcase>'
    )
    report.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    found = read_report(report, 1.0)
    assert (found.result, found.passed, found.skipped, found.failed) == ("failed", 1, 1, ["c"])
    report.write_text('<testsuites><testcase name="b"><skipped/></testcase></testsuites>')
    assert read_report(report, 1.0).result == "skipped"


@pytest.mark.parametrize(
    ("version", "is_tested"),
    [("2.50.0", True), ("2.55.1", True), ("2.60.0", True), ("2.61.0", False), ("2.49.9", False), ("", False)],
)
def test_a_version_outside_the_range_is_reported(
    monkeypatch: pytest.MonkeyPatch, version: str, is_tested: bool
) -> None:
    monkeypatch.setattr(tested, "RANGES", {"ray": ("2.50", "2.60")})
    line = tested.untested("ray", version)
    assert (line == "") is is_tested
    if not is_tested:
        assert "was not tested with this raysweep (2.50 to 2.60 were)" in line
    assert tested.untested("dask", version) == ""
