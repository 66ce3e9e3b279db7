"""The panel of a law: optima, their band and the training's scale, in the document and in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raysweep.outcome import SweepOutcome, TrainOutcome
from raysweep.pages.document import make_document
from raysweep.pages.write import write_report
from raysweep.pipeline.night import training_request
from raysweep.runs.folder import SweepFolder
from raysweep.runs.reading.whole_sweep import read_whole
from raysweep.runs.training import RunFolder
from raysweep.specs import TrainSpec
from raysweep.training.model_card import source_of
from raysweep.training.predicted import predicted_of
from tests.begun_trainings import begin_training
from tests.browsers import Watched, chromium, wait_until
from tests.unit.pages.sweeps import store
from tests.unit.training.drifting import SWEEP, drifting


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


def swept(root: Path, **fields: Any) -> tuple[SweepFolder, SweepOutcome]:
    folder, _ = store(root, drifting, **SWEEP | fields)
    outcome = folder.read_outcome()
    assert outcome is not None
    return folder, outcome


def trained(root: Path, folder: SweepFolder, outcome: SweepOutcome) -> TrainOutcome:
    """A training of the sweep that has ended, as it is stored."""
    train = TrainSpec(
        trainable="m:f",
        name="full",
        scale={"rows": 64000},
        transfer={"lr": "law", "rounds": "law"},
        storage_path=str(root),
    )
    asked = training_request(train, outcome, "k")
    spec, run = asked.spec, RunFolder(folder.store, asked.run.id)
    begin_training(run, spec, "k")
    made = TrainOutcome(
        run_id=asked.run.id,
        name="full",
        key="k",
        status="completed",
        metrics={"loss": 0.1},
        config=dict(spec.config),
        uri=run.uri,
        started_at=1.0,
        ended_at=2.0,
        source=source_of(spec),
        carried=spec.carried,
        predicted=predicted_of(spec.carried, [], {"loss": 0.1}),
    )
    run.write_outcome(made)
    return made


def test_the_panel_has_each_parameter_that_the_law_moves(tmp_path: Path) -> None:
    folder, outcome = swept(tmp_path)
    before = make_document(read_whole(folder))["law"]
    assert (before["problem"], before["target"], before["at"], before["score"]) == ("", "", 64000, None)
    training = trained(tmp_path, folder, outcome)
    law = make_document(read_whole(folder))["law"]
    assert (law["scale"], law["target"], law["at"], law["verdict"]) == (
        "rows",
        "rows=64000",
        64000,
        "carries",
    )
    assert law["score"]["got"] == 0.1
    by_name = {each["name"]: each for each in law["parameters"]}
    assert set(by_name) == {"lr", "rounds"}
    lr = by_name["lr"]
    assert lr["log"]
    assert [size for size, _ in lr["optima"]] == [1000, 4000, 16000]
    assert lr["carried"] == training.config["lr"]
    first, last = lr["line"][0], lr["line"][-1]
    assert (first[0], last[0]) == (pytest.approx(1000), pytest.approx(64000))
    for _, middle, low, high in lr["line"]:
        assert low < middle < high
    assert last[1] == pytest.approx(first[1] / 8, rel=0.4)


def test_a_sweep_of_one_scale_has_no_panel(tmp_path: Path) -> None:
    folder, _ = swept(tmp_path, name="alone", scales=(), scale={"rows": 1000})
    assert make_document(read_whole(folder))["law"] is None


def test_in_a_browser_the_panel_is_drawn_wide_and_narrow(browser: Any, tmp_path: Path) -> None:
    folder, outcome = swept(tmp_path / "runs")
    trained(tmp_path / "runs", folder, outcome)
    path = write_report(folder.uri, tmp_path / "report.html")
    for width, scheme in ((390, "dark"), (1280, "light")):
        watched = Watched(browser, viewport={"width": width, "height": 800}, color_scheme=scheme)
        page = watched.open(path.as_uri())
        page.locator("#law").scroll_into_view_if_needed()
        wait_until(page, "document.querySelectorAll('#law .plot[data-drawn]').length === 2")
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        label = page.locator("#law canvas[role=img]").first.get_attribute("aria-label")
        assert label.startswith("lr: the optimum is 0.")
        assert "rows=64000" in page.inner_text("#law")
        page.close()
        assert watched.problems == []
