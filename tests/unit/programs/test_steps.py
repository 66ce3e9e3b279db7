"""The step counter of a program: repetitions after a retry, and counters that are not one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from raysweep.programs.doubts import Doubts
from raysweep.programs.plan import plan_of
from raysweep.programs.runner import Program
from raysweep.programs.steps import STEP_FILE, Steps
from raysweep.specs import SweepSpec
from raysweep.testing import run_trial

RESTARTS = "after a retry from a checkpoint the step starts again, so all reports count"


def reported(steps: Steps, *records: dict[str, Any]) -> list[dict[str, Any]]:
    return [record for record in records if not steps.is_repeated(record)]


def resumed(folder: Path, *, step: int, number: int | None, seen: list[int]) -> tuple[Steps, list[str]]:
    """The steps of an attempt that begins from a checkpoint of one which has seen these."""
    first = Steps(None, Doubts("m"))
    assert len(reported(first, *({"step": each, "loss": each} for each in seen))) == len(seen)
    first.write(folder, step, number)
    said: list[str] = []
    steps = Steps(folder, Doubts("m", said.append))
    assert not os.listdir(folder)
    return steps, said


@pytest.mark.parametrize(
    ("number", "again", "counted", "doubts"),
    [
        (None, [8, 9], [8, 9], []),
        (None, [7, 8], [8], []),
        (4, [5, 6, 7, 8], [8], []),  # it holds up to 4, and came with the report of 7
        (4, [1, 2, 3], [1, 2, 3], [RESTARTS]),
        (None, [1, 2, 3], [1, 2, 3], [RESTARTS]),
        (1, [10, 20], [10, 20], []),
    ],
)
def test_what_was_reported_before_the_checkpoint_is_left_out_but_not_of_a_counter_that_restarts(
    tmp_path: Path, number: int | None, again: list[int], counted: list[int], doubts: list[str]
) -> None:
    steps, said = resumed(tmp_path, step=7, number=number, seen=[*range(1, 8)])
    found = reported(steps, *({"step": step, "loss": 0.5} for step in again))
    assert [record["step"] for record in found] == counted
    assert [text.removeprefix("m: ").partition(": a program")[0] for text in said] == doubts


def test_a_file_of_another_release_or_none_leaves_nothing_out(tmp_path: Path) -> None:
    (tmp_path / STEP_FILE).write_text('{"step": 3}')
    steps = Steps(tmp_path, Doubts("m"))
    assert reported(steps, {"epoch": 3}, {"epoch": 4}, {"loss": 1}) == [{"epoch": 4}, {"loss": 1}]
    for text in ("[]", "{", "{}"):
        (tmp_path / STEP_FILE).write_text(text)
        assert reported(Steps(tmp_path, Doubts("m")), {"step": 1}) == [{"step": 1}]


@pytest.mark.parametrize(
    ("records", "doubt"),
    [
        ([{"epoch": 1, "loss": 1}, {"epoch": 1, "loss": 2}, {"epoch": 2, "loss": 1}], ""),
        ([{"step": 1, "loss": 1}, {"step": 1, "val_loss": 2}, {"step": 2, "loss": 1}], ""),
        ([{"loss": 1}, {"loss": 1}], ""),
        ([{"step": 1, "loss": 1}, {"step": 1, "loss": 2}], "reports of 'loss' repeat a step"),
        (
            [{"step": 5, "loss": 1}, {"step": 6, "acc": 1}, {"step": 1, "loss": 2}],
            "reports of 'loss' go back",
        ),
        ([{"epoch": 5, "loss": 1}, {"epoch": 1, "loss": 2}], "reports of 'loss' go back to an earlier step"),
    ],
)
def test_a_metric_whose_step_repeats_or_goes_back_is_named_once(
    records: list[dict[str, Any]], doubt: str
) -> None:
    said: list[str] = []
    given = [*records, *(records[-1:] if doubt else [])]
    assert reported(Steps(None, Doubts("m", said.append)), *given) == given
    named = [text for text in said if not doubt or text.startswith(f"m: {doubt}")]
    assert len(named) == bool(doubt)


COUNTS = """
import json, os, pathlib, sys, time
out = pathlib.Path(os.environ["RAYSWEEP_OUTPUT_DIR"])
restored = os.environ.get("RAYSWEEP_CHECKPOINT")
done = int(pathlib.Path(restored, "done").read_text()) if restored else 0
for step in range(1, 7 - done):
    with open(out / "m.jsonl", "a") as file:
        file.write(json.dumps({"step": step, "done": done + step}) + "\\n")
    time.sleep(0.3)
    (out / f"save-{step}").mkdir()
    (out / f"save-{step}" / "done").write_text(str(done + step))
    time.sleep(0.3)
    if step == 3 and not restored:
        sys.exit("the node is lost")
"""


def test_a_program_whose_step_starts_again_after_a_retry_loses_no_report_and_no_checkpoint(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").write_text(COUNTS)
    spec = SweepSpec(
        name="counts",
        command=[sys.executable, str(tmp_path / "train.py")],
        program={"metrics": {"jsonl": "m.jsonl"}, "checkpoints": {"folder": "save-*", "marker": "done"}},
        param_space={"x": {"choice": [1]}},
        metric="done",
        mode="max",
    )
    first, second = run_trial(Program(plan_of(spec)), {"x": 1}, max_failures=1)
    assert [row["done"] for row in first.reports] == [1, 2, 3]
    made = [row["done"] for row in second.reports]
    assert made == [*range(made[0], 7)]
    assert made[0] <= 4
    assert len(second.checkpoints) >= 2
    assert any(RESTARTS in note for note in second.notes)
