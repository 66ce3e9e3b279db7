"""Programs whose files are not one growing file of one writer, as trials of a sweep."""

from __future__ import annotations

from pathlib import Path

import pytest

import raysweep as rs
from raysweep.cluster.ray.connection import RayConnection
from tests.engine.conftest import INLINE
from tests.engine.programs import spec_of

pytestmark = [
    pytest.mark.ray,
    # Of Ray Train, in this process.
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*"),
]

CURVES = """
import os
from tensorboardX import SummaryWriter
runs = os.environ["RAYSWEEP_OUTPUT_DIR"] + "/runs/"
writers = [SummaryWriter(runs + name) for name in ("train", "validation")]
for step in range(3):
    for writer, value in zip(writers, (0.25, 0.75)):
        writer.add_scalar("epoch_loss", value, step)
for writer in writers:
    writer.close()
"""


def test_a_sweep_is_ranked_by_the_curve_that_it_names_and_notes_that_there_are_two(
    ray_cluster: RayConnection, storage: Path, tmp_path: Path
) -> None:
    pytest.importorskip("tensorboardX")
    (tmp_path / "train.py").write_text(CURVES)
    spec = spec_of(
        storage,
        command=["{python}", str(tmp_path / "train.py"), "{args}"],
        program={"metrics": {"tensorboard": "runs"}},
        param_space={"x": {"choice": [1]}},
        metric="validation/epoch_loss",
        **INLINE,
    )
    outcome = rs.run_sweep(spec, key="k")
    assert [(trial.reports, trial.score) for trial in outcome.trials] == [(3, 0.75)]
    assert any("'epoch_loss' is written in several folders" in str(note) for note in outcome.notes)


def test_two_trials_that_would_read_one_file_do_not_get_each_others_numbers(
    ray_cluster: RayConnection, storage: Path, tmp_path: Path
) -> None:
    shared = tmp_path / "m.jsonl"
    script = f'for i in 1 2 3 4; do echo "{{\\"loss\\": $2}}" >> {shared}; sleep 1; done'
    spec = spec_of(
        storage,
        command=["bash", "-c", script, "train", "{args}"],
        program={"metrics": {"jsonl": str(shared)}},
        param_space={"x": {"grid_search": [1, 2]}},
        search="grid",
        max_concurrent_trials=2,
        failure={"max_failures": 0},
    )
    first, second = rs.run_sweep(spec, key="k").trials
    for trial in (first, second):
        if trial.state == "completed":
            assert trial.score == trial.config["x"]
        else:
            assert "another trial on this node reads" in str(trial.failure)
