"""The page is one file that asks nobody, and in which data stays data."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from benchmarks import report as report_benchmark
from raysweep.errors import RaysweepError, SpecError, SweepNotFoundError
from raysweep.pages import write_report
from raysweep.pages.dashboard import app
from raysweep.pages.page import SCRIPTS, STYLE, as_block, render
from raysweep.stored import StoredSweep
from tests.unit.pages.sweeps import store, unfinished

ROOT = Path(__file__).parents[3]

PARTS = {*SCRIPTS, *app.SCRIPTS, STYLE}


def block(text: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.mark.parametrize(
    "text",
    ["</script><script>x()</script>", "<!--<script>", "&lt;b&gt;", "\u2028 \u2029 \x00 \x1b[31m", "]]>"],
)
def test_data_cannot_leave_its_block(text: str) -> None:
    page = render(text, {text: [text]})
    assert block(page) == {text: [text]}
    assert page.count("<script") == 2 + "".join(map(_read, SCRIPTS)).count("<script")
    assert f"<title>{html.escape(text)}</title>" in page


def test_title_and_summary_are_there_before_the_script_runs() -> None:
    page = render("<i>n</i>: completed", {}, "<b>The sweep</b> is complete.").partition("</main>")[0]
    assert "<h1>&lt;i&gt;n&lt;/i&gt;: completed</h1>" in page
    assert "&lt;b&gt;The sweep&lt;/b&gt; is complete." in page
    assert "<i>" not in page
    assert "<b>" not in page


def test_text_that_is_not_valid_unicode_is_replaced() -> None:
    assert json.loads(as_block({"a": "x\ud800y", "b": float("nan")})) == {"a": "x?y", "b": None}


def test_the_policy_lets_only_this_script_and_this_style_run() -> None:
    page = render("t", {})
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1])  # type: ignore[index]
    inline = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(inline) == 1
    for directive, text in (("script-src", inline[0]), ("style-src", _read(STYLE))):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert not re.search(
        r" on[a-z]+=| style=", page.partition("<style>")[0] + page.partition("</style>")[2][:2000]
    )


def test_the_parts_name_no_address_and_write_no_markup() -> None:
    for name in PARTS:
        text = _read(name)
        assert not re.search(r"https?://|url\(|@import", text), name
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text
        ), name


def test_the_parts_are_in_the_package_and_listed() -> None:
    folder = files("raysweep.pages") / "static"
    assert {each.name for each in folder.iterdir()} == PARTS


def test_a_report_of_an_ended_and_of_an_unfinished_sweep(tmp_path: Path) -> None:
    folder, outcome = store(tmp_path / "store")
    path = write_report(folder.uri, tmp_path)
    assert path == tmp_path / f"{folder.sweep_id}.html"
    assert block(path.read_text())["sweep"]["status"] == "completed"
    assert path.stat().st_size < 250_000
    again = StoredSweep.of(outcome.model_copy(update={"uri": folder.uri})).report(tmp_path / "a.html")
    assert again == tmp_path / "a.html"
    unfinished(folder)
    write_report(folder.sweep_id, again, storage=str(tmp_path / "store"))
    assert block(again.read_text())["sweep"]["has_ended"] is False
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.html", path.name, "store"]


def test_beside_another_sweep_it_says_what_differs(tmp_path: Path) -> None:
    folder, _ = store(tmp_path / "store")
    other, outcome = store(tmp_path / "store", name="longer", num_samples=30)
    path = write_report(folder.uri, tmp_path, compare=[other.sweep_id])
    (row,) = block(path.read_text())["compare"]
    assert row["id"] == other.sweep_id
    assert row["best"] == pytest.approx(outcome.best.score)  # type: ignore[union-attr]
    assert ["num_samples", "24", "30"] in row["differences"]
    assert row["curve"]


def test_what_cannot_be_written_or_found_is_one_line(tmp_path: Path) -> None:
    folder, outcome = store(tmp_path / "store")
    with pytest.raises(
        SpecError, match=r"--output: .* its folder does not exist; name a file in a folder that exists"
    ):
        write_report(folder.uri, tmp_path / "no" / "a.html")
    with pytest.raises(SweepNotFoundError):
        write_report("unknown", tmp_path, storage=str(tmp_path / "store"))
    with pytest.raises(RaysweepError, match="does not say where"):
        StoredSweep.of(outcome.model_copy(update={"uri": ""})).report()
    assert not list(tmp_path.glob(".*"))


def _read(name: str) -> str:
    return (ROOT / "engine/raysweep/pages/static" / name).read_text()


def test_the_benchmark_runs() -> None:
    found = report_benchmark.run(1, ((40, 3),), has_browser=False)
    assert found["40"]["report_bytes"] > 50_000
    assert found["40"]["report_s"] > 0
