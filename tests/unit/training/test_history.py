"""What a training's outcome says of its reports, its use of the cluster, and its data."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.outcome import TrainOutcome, Usage
from raysweep.specs import TrainSpec
from raysweep.training import data_digest as data_module
from raysweep.training.data_digest import digest_data, try_to_digest
from raysweep.training.history import MAX_ROW_BYTES, MAX_ROWS, History
from raysweep.training.usage import Meter


def reported(history: History, first: int, last: int) -> None:
    for step in range(first, last + 1):
        history.add({"step": step}, at=float(step), workers=2)


def steps(history: History) -> list[int]:
    assert [each.metrics["step"] for each in history.reports] == [each.iteration for each in history.reports]
    return [each.iteration for each in history.reports]


def test_reports_are_kept_in_order() -> None:
    history = History()
    assert history.reports == ()
    reported(history, 1, 3)
    assert steps(history) == [1, 2, 3]
    assert [(each.at, each.workers) for each in history.reports] == [(1.0, 2), (2.0, 2), (3.0, 2)]


@pytest.mark.parametrize("number", [MAX_ROWS, MAX_ROWS + 1, 5 * MAX_ROWS + 7])
def test_of_many_reports_every_nth_and_the_last_are_kept(number: int) -> None:
    history = History()
    reported(history, 1, number)
    kept = steps(history)
    assert MAX_ROWS / 2 <= len(kept) <= MAX_ROWS + 1
    assert (kept[0], kept[-1]) == (1, number)
    assert len({after - before for before, after in pairwise(kept[:-1])}) == 1


def test_a_large_report_is_cut_to_what_fits() -> None:
    history = History()
    history.add({"loss": 0.5, "text": "x" * MAX_ROW_BYTES, "auc": 1.0}, at=0.0, workers=1)
    assert history.reports[0].metrics == {"loss": 0.5, "auc": 1.0}


def test_workers_that_begin_again_repeat_what_came_after_the_newest_checkpoint() -> None:
    history = History()
    reported(history, 1, 4)
    history.seal("{}")
    reported(history, 5, 7)
    history.rewind()
    assert steps(history) == [1, 2, 3, 4]
    reported(history, 5, 5)
    assert steps(history) == [1, 2, 3, 4, 5]


def test_without_a_checkpoint_they_begin_from_the_start() -> None:
    history = History()
    reported(history, 1, 4)
    history.rewind()
    assert history.reports == ()


@pytest.mark.parametrize("number", [4, 3 * MAX_ROWS + 2])
def test_another_process_goes_on_from_what_lies_beside_the_checkpoints(number: int) -> None:
    first = History()
    reported(first, 1, number)
    first.data = digest_data({"tests": os.path.dirname(__file__)})
    text = first.seal(json.dumps({"checkpoint_results": [1]}))
    reported(first, number + 1, number + 2)
    assert json.loads(text)["checkpoint_results"] == [1]
    second = History()
    second.resume(text.encode())
    assert second.data == first.data
    reported(second, number + 1, number + 2)
    assert second.reports == first.reports


def test_nan_passes_through_the_list_of_checkpoints() -> None:
    history = History()
    history.add({"loss": float("nan")}, at=0.0, workers=1)
    text = history.seal("{}")
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    history.resume(text.encode())
    assert history.reports[0].metrics["loss"] != history.reports[0].metrics["loss"]


@pytest.mark.parametrize("left", [None, b"{}", b'{"raysweep_attempt": 3}'])
def test_a_run_without_a_history_has_one_from_now_on(left: bytes | None) -> None:
    history = History()
    history.resume(left)
    reported(history, 1, 2)
    assert steps(history) == [1, 2]


# -- what it uses -------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_workers_count_from_their_start_to_their_end_in_all_attempts() -> None:
    clock = Clock()
    meter = Meter({"CPU": 4.0, "GPU": 0.5}, clock)
    meter.resume(Usage(cpu_hours=1.0, gpu_hours=2.0, active_s=50.0))
    clock.now += 1800.0  # nobody is at work yet
    meter.set_workers(2)
    clock.now += 3600.0
    meter.set_workers(1)
    clock.now += 3600.0
    meter.set_workers(0)
    clock.now += 10.0
    assert meter.read() == Usage(cpu_hours=13.0, gpu_hours=3.5, active_s=9060.0)
    assert meter.read() == meter.read()


# -- its data -----------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "part").mkdir(parents=True)
    (folder / "a.csv").write_text("1,2\n")
    (folder / "part/b.csv").write_text("3,4\n")
    return folder


def test_small_data_are_known_by_their_content(files: Path) -> None:
    (before,) = digest_data({"train": str(files)})
    assert (before.of, before.objects, before.size_bytes, before.name) == ("content", 2, 8, "train")
    os.utime(files / "a.csv", (1.0, 1.0))
    assert digest_data({"train": f"file://{files}"})[0].digest == before.digest, "whatever their age"
    (files / "part/b.csv").write_text("3,5\n")
    assert digest_data({"train": str(files)})[0].digest != before.digest
    (files / "part/b.csv").write_text("3,4\n")
    (files / "part/b.csv").rename(files / "part/c.csv")
    assert digest_data({"train": str(files)})[0].digest != before.digest, "names count"


def test_large_data_are_known_by_their_listing_and_the_digest_says_so(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_module, "MAX_READ_BYTES", 7)
    (before,) = digest_data({"train": str(files)})
    assert (before.of, before.size_bytes) == ("listing", 8)
    assert digest_data({"train": str(files)}) == (before,)
    os.utime(files / "a.csv", (1.0, 1.0))
    assert digest_data({"train": str(files)})[0].digest != before.digest


def test_of_very_many_objects_the_first_are_looked_at_and_the_digest_says_so(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_module, "MAX_OBJECTS", 1)
    (found,) = digest_data({"train": str(files)})
    assert (found.is_cut, found.objects, found.of) == (True, 1, "listing")


def test_a_file_alone_is_known_whatever_lies_beside_it(files: Path) -> None:
    (before,) = digest_data({"train": str(files / "a.csv")})
    assert (before.objects, before.size_bytes) == (1, 4)
    (files / "z.csv").write_text("9")
    assert digest_data({"train": str(files / "a.csv")}) == (before,)


def test_data_that_are_not_there_are_refused_by_name(files: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"data\.train: there is nothing at"):
        digest_data({"train": str(tmp_path / "nowhere")})
    (tmp_path / "empty").mkdir()
    with pytest.raises(SpecError, match=r"data\.more: there is nothing at .*name a file, or a folder"):
        digest_data({"a": str(files), "more": str(tmp_path / "empty")})
    assert try_to_digest({"train": str(tmp_path / "nowhere")}) is None


def test_data_are_part_of_the_digest() -> None:
    plain = TrainSpec(trainable="math:sqrt")
    assert plain.replace(data={"train": "s3://bucket/x"}).digest() != plain.digest()
    with pytest.raises(SpecError, match=r"data\.train: unknown scheme 'ftp'"):
        TrainSpec(trainable="math:sqrt", data={"train": "ftp://x/y"})


def test_an_outcome_of_an_earlier_version_is_read() -> None:
    fields: dict[str, Any] = {
        "run_id": "r",
        "name": "n",
        "status": "completed",
        "started_at": 0,
        "ended_at": 1,
    }
    found = TrainOutcome.from_json(json.dumps(fields))
    assert (found.history, found.usage, found.data) == ((), None, ())
