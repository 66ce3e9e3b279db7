"""The data of a report agrees with the outcome and the journal that it is made from."""

from __future__ import annotations

import itertools
import math
import struct
from base64 import b64decode
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from raysweep.numeric.shown import show_number
from raysweep.pages.document import make_document
from raysweep.runs.reading.whole_sweep import read_whole
from raysweep.simulate.kills import Kill
from raysweep.storage.objects.opening import open_store
from raysweep.stored import StoredSweep
from tests.unit.pages.sweeps import learn, store, unfinished

CODES = {"f4": "f", "f8": "d", "u1": "B", "u2": "H", "u4": "I"}


def decoded(column: dict[str, Any]) -> list[Any]:
    data, code = b64decode(column["data"]), CODES[column["type"]]
    return list(struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data))


def param(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in document["params"] if each["name"] == name)


def test_columns_have_every_trial(tmp_path: Path) -> None:
    folder, outcome = store(tmp_path)
    document = make_document(read_whole(folder))
    trials = document["trials"]
    states = [trials["states"][code] for code in decoded(trials["state"])]
    assert states == [trial.state for trial in outcome.trials]
    scores = decoded(document["metrics"][0]["column"])
    for trial, score in zip(outcome.trials, scores, strict=True):
        assert (trial.score is None) == math.isnan(score)
        assert trial.score is None or score == pytest.approx(trial.score, rel=5e-6)
    rate, width, kind = (param(document, name) for name in ("rate", "net.width", "net.kind"))
    assert (rate["log"], width["log"], width["whole"], kind["kind"]) == (True, False, True, "text")
    assert decoded(width["column"]) == [trial.config["net"]["width"] for trial in outcome.trials]
    labels = [kind["column"]["labels"][code] for code in decoded(kind["column"])]
    assert labels == [trial.config["net"]["kind"] for trial in outcome.trials]
    assert [each["name"] for each in document["metrics"]] == ["auc", "latency_ms"]
    assert document["best"]["number"] == outcome.found_best.number  # type: ignore[union-attr]
    assert [trial["number"] for trial in document["top"]] == [trial.number for trial in outcome.top(12)]


def test_curves_are_the_reports_of_the_journal(tmp_path: Path) -> None:
    folder, outcome = store(tmp_path)
    whole = read_whole(folder)
    reported: dict[int, list[float]] = {}
    for row in StoredSweep.of(outcome).reports():
        if not row["overrun"]:
            reported.setdefault(row["number"], []).append(row["auc"])
    assert {number: list(curve.values["auc"]) for number, curve in whole.curves.items()} == {
        number: pytest.approx(values, rel=1e-6) for number, values in reported.items()
    }
    curves = make_document(whole)["curves"]
    assert decoded(curves["trial"]) == sorted(reported)
    assert decoded(curves["length"]) == [len(reported[number]) for number in sorted(reported)]


def test_what_came_after_a_stop_is_on_no_curve(tmp_path: Path) -> None:
    def curve(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
        return {"auc": config["rate"] + 0.01 * iteration} if iteration <= 40 else None

    scheduler = {"median_stopping": {"grace_period": 2, "min_samples_required": 2}}
    folder, outcome = store(tmp_path, curve, scheduler=scheduler, slots=6, step_s=0.001, save_every=0)
    assert sum(trial.overrun_reports for trial in outcome.trials) > 0
    for number, found in read_whole(folder).curves.items():
        trial = outcome.trials[number]
        assert len(found.iterations) == trial.reports


def test_a_curve_has_no_report_twice_after_a_failure(tmp_path: Path) -> None:
    failed: set[str] = set()

    def curve(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
        if iteration == 6 and str(config) not in failed:
            failed.add(str(config))
            raise RuntimeError("once")
        return learn(config, iteration) if config["net"]["width"] <= 56 else None

    folder, _ = store(tmp_path, curve, scheduler="fifo", failure={"max_failures": 2, "breaker_trials": 1000})
    whole = read_whole(folder)
    assert any(len(trial.attempts) > 1 for trial in whole.trials)
    for found in whole.curves.values():
        assert list(found.iterations) == sorted(set(found.iterations))
        assert {len(values) for values in found.values.values()} == {len(found.iterations)}


def test_no_two_attempts_of_a_slot_overlap(tmp_path: Path) -> None:
    folder, _ = store(tmp_path, slots=4)
    timeline = make_document(read_whole(folder))["timeline"]
    assert timeline["of"] == len(decoded(timeline["trial"]))
    runs = sorted(zip(*(decoded(timeline[name]) for name in ("lane", "start", "length")), strict=True))
    assert len(timeline["lanes"]) == len({lane for lane, _, _ in runs}) == 4
    for (lane, start, length), (other, begin, _) in itertools.pairwise(runs):
        assert lane != other or start + length <= begin + 1e-3


def test_a_slot_that_opens_again_after_a_resume_has_its_old_lane(tmp_path: Path) -> None:
    folder, outcome = store(
        tmp_path, slots=4, kills=[Kill(when="after", append=9), Kill(when="after", append=20)]
    )
    assert outcome.generation == 3
    timeline = make_document(read_whole(folder))["timeline"]
    assert [lane["name"] for lane in timeline["lanes"]] == ["slot 0", "slot 1", "slot 2", "slot 3"]


def test_a_score_has_one_rounding(tmp_path: Path) -> None:
    """A float of 32 bits near the middle between two texts would be shown as the other one."""

    def curve(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
        return {"auc": config["rate"] / 3} if iteration < 2 else None

    folder, outcome = store(tmp_path, curve, scheduler="fifo", num_samples=400)
    document = make_document(read_whole(folder))
    scores = decoded(document["metrics"][0]["column"])
    shown = [show_number(float(score)) for score in scores]
    assert shown == [show_number(trial.score) for trial in outcome.trials]
    single = [struct.unpack("f", struct.pack("f", trial.score))[0] for trial in outcome.trials]
    assert [show_number(score) for score in single] != shown, "these scores would show it"


def test_the_page_ranks_as_the_outcome_does(tmp_path: Path) -> None:
    folder, outcome = store(
        tmp_path, metric=["auc", "latency_ms"], mode=["max", "min"], scheduler="fifo",
        constraints=["latency_ms <= 18"],
    )  # fmt: skip
    trials = make_document(read_whole(folder))["trials"]
    order = [trial.number for trial in outcome.top(len(outcome))]
    assert decoded(trials["order"]) == order
    standing = [number for number, is_standing in enumerate(decoded(trials["standing"])) if is_standing]
    assert standing == [
        trial.number for trial in outcome.trials if trial.score and outcome.may_be_best(trial)
    ]
    left = make_document(read_whole(unfinished(folder)))["trials"]
    assert decoded(left["order"]) == order


def test_failures_of_one_cause_are_together(tmp_path: Path) -> None:
    folder, outcome = store(tmp_path, num_samples=60, scheduler="fifo")
    failed = [trial.number for trial in outcome.trials if trial.state == "failed"]
    assert len(failed) > 1
    groups = make_document(read_whole(folder))["failures"]
    assert sum(group["failed"] for group in groups) == len(failed)
    assert Counter(number for group in groups for number in group["trials"]) == Counter(failed)
    assert groups[0]["type"] == "ValueError"
    assert groups[0]["kind"] == "user_error"
    assert "too wide" in groups[0]["line"]


def test_a_sweep_that_has_not_ended_has_the_same_trials(tmp_path: Path) -> None:
    folder, _ = store(tmp_path)
    ended = make_document(read_whole(folder))
    left = make_document(read_whole(unfinished(folder)))
    for name in ("state", "ended", "took"):
        assert left["trials"][name] == ended["trials"][name]
    assert left["params"] == ended["params"]
    assert left["curves"] == ended["curves"]
    assert left["top"] == ended["top"]
    assert left["sweep"]["has_ended"] is False
    assert "outcome was not stored" in left["verdict"]


def test_without_its_journal_an_ended_sweep_has_all_but_the_curves(tmp_path: Path) -> None:
    folder, outcome = store(tmp_path)
    store_of = open_store(tmp_path)
    first = min(info.key for info in store_of.list(f"{folder.sweep_id}/journal"))
    data = store_of.get(first)
    assert data is not None
    store_of.put(first, b"x" * len(data))
    document = make_document(read_whole(folder))
    assert "journal" in document["problem"]
    assert document["curves"]["values"] == {}
    assert document["trials"]["count"] == len(outcome.trials)
    assert document["timeline"]["lanes"], "attempts are in the outcome too"


def test_without_a_metric_nothing_is_ranked(tmp_path: Path) -> None:
    folder, _ = store(tmp_path, metric=None, mode=None, scheduler="fifo")
    document = make_document(read_whole(folder))
    assert document["best"] is None
    assert document["sweep"]["metric"] == ""
    assert document["metric"] == "auc", "what can be drawn against is there"
    assert "problem" in document["importances"]
    assert document["trials"]["count"] == 24


def test_the_words_say_what_ended_it_and_how_sure_the_best_is(tmp_path: Path) -> None:
    folder, outcome = store(tmp_path, repeat=3, num_samples=5, scheduler="fifo")
    document = make_document(read_whole(folder))
    first = outcome.configs[0]
    assert document["verdict"].startswith("The sweep completed after ")
    assert f"mean of {first.mean:.6g} ± " in document["certainty"][0]
    assert "3 repeats" in document["certainty"][0]
    folder, outcome = store(tmp_path, name="once", scheduler="fifo")
    document = make_document(read_whole(folder))
    assert "Each config ran once" in document["certainty"][0]


def test_a_best_value_at_the_end_of_its_range_is_told(tmp_path: Path) -> None:
    """The best rate is the largest of 200, so near 0.1, where its range ends."""
    folder, _ = store(tmp_path, num_samples=200, scheduler="fifo")
    sure = make_document(read_whole(folder))["certainty"]
    assert any(line.startswith("rate = ") and "at the upper end of its range" in line for line in sure)
    assert not any(line.startswith("net.kind") for line in sure)


def test_several_metrics_have_their_front(tmp_path: Path) -> None:
    folder, outcome = store(
        tmp_path, metric=["auc", "latency_ms"], mode=["max", "min"], scheduler="fifo",
        constraints=["latency_ms <= 12"],
    )  # fmt: skip
    document = make_document(read_whole(folder))
    assert document["pareto"] == [trial.number for trial in outcome.pareto]
    assert decoded(document["trials"]["feasible"]) == [int(trial.is_feasible) for trial in outcome.trials]
    assert [(each["name"], each["mode"]) for each in document["metrics"]] == [
        ("auc", "max"), ("latency_ms", "min"),
    ]  # fmt: skip
