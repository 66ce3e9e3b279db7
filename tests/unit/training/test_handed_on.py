"""A training that finished earlier is handed on with what has changed since."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from raysweep.outcome import TrainOutcome
from raysweep.specs import TrainSpec
from raysweep.specs.code_digest import code_digest_of
from raysweep.training.data_digest import digest_data
from raysweep.training.run import told

CODE = "def train(config):\n    return {{'loss': {loss}}}\n"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(CODE.format(loss=0.5))
    (tmp_path / "rows.csv").write_text("1,2\n")
    return path


def ended(spec: TrainSpec) -> TrainOutcome:
    return TrainOutcome(
        run_id="full-1",
        name="full",
        status="completed",
        started_at=1.0,
        ended_at=2.0,
        code_digest=code_digest_of(spec),
        data=digest_data(spec.data),
    )


def test_nothing_is_told_where_nothing_changed(script: Path, caplog: pytest.LogCaptureFixture) -> None:
    spec = TrainSpec(
        command=["python", str(script)], name="full", data={"rows": str(script.parent / "rows.csv")}
    )
    assert told(ended(spec), spec) == ended(spec)
    assert not caplog.records


def test_changed_code_and_data_are_told(script: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = script.parent / "rows.csv"
    spec = TrainSpec(command=["python", str(script)], name="full", data={"rows": str(rows)})
    before = ended(spec)
    script.write_text(CODE.format(loss=0.4))
    rows.write_text("1,3\n")
    with caplog.at_level(logging.WARNING, logger="raysweep"):
        found = told(before, spec)
    assert "changed since: the trainable's code, data rows;" in found.nothing_ran
    assert "another key" in found.nothing_ran
    assert found.nothing_ran in str(found)
    assert found.nothing_ran in caplog.text
    assert found.model_copy(update={"nothing_ran": ""}) == before


def test_data_that_are_gone_are_not_called_changed(script: Path) -> None:
    rows = script.parent / "rows.csv"
    spec = TrainSpec(command=["python", str(script)], name="full", data={"rows": str(rows)})
    before = ended(spec)
    rows.unlink()
    assert told(before, spec) == before
