"""`raysweep deliver`: what the callbacks of an ended sweep missed is delivered, each event once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raysweep.cli.commands.deliver import deliver
from raysweep.delivery.beside import Beside
from raysweep.errors import SpecError
from raysweep.hooks.spec import CallbackSpec
from raysweep.outcome import SweepOutcome
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.storage.objects.opening import open_store
from tests.golden.replay import read_expected
from tests.unit.delivery.callbacks import Options, Writes
from tests.unit.delivery.journals import SWEEP, GoldenSweep, ids_of, writes

NAME = "chaos-98"


def ended(root: Path, *callbacks: CallbackSpec, has_ended: bool = True) -> GoldenSweep:
    expected = read_expected(NAME)
    folder = SweepFolder(open_store(root), SWEEP)
    spec: dict[str, Any] = expected["spec"] | {"callbacks": [each.stored() for each in callbacks]}
    folder.write_spec_if_absent(SweepRecord(digest="", key="key", seed=expected["seed"], spec=spec))
    sweep = GoldenSweep(NAME, root)
    sweep.write()
    if has_ended:
        folder.write_outcome_if_absent(SweepOutcome.model_validate(expected["outcome"]))
    return sweep


def test_what_a_callback_missed_is_delivered_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    hangs = writes(tmp_path / "out", does="hang", at=3)
    sweep = ended(tmp_path / "store", hangs)
    beside = Beside(sweep.folder, (hangs,), idle_s=1.0, most_s=5.0)
    beside.start()
    (note,) = beside.finish()
    assert f"raysweep deliver {SWEEP}" in note
    assert deliver(SWEEP, str(tmp_path / "store"), 60.0) == 0
    assert f"all events of {SWEEP} are delivered to" in capfd.readouterr().out
    assert list(dict.fromkeys((tmp_path / "out").read_text().split())) == ids_of(sweep)
    assert deliver(SWEEP, str(tmp_path / "store"), 60.0) == 0
    before = (tmp_path / "out").read_text()
    assert deliver(SWEEP, str(tmp_path / "store"), 60.0) == 0
    assert (tmp_path / "out").read_text() == before, "nothing was left"


def test_what_is_not_stored_is_said_and_the_others_get_theirs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    held = CallbackSpec.of(Writes(Options(path=str(tmp_path / "held")), None))
    secret = CallbackSpec.of({"webhook": {"url": "https://example.org/token"}})
    sweep = ended(tmp_path / "store", writes(tmp_path / "out"), held, secret)
    assert deliver(SWEEP, str(tmp_path / "store"), 60.0) == 1
    said = capfd.readouterr().err
    assert "it is an object of Python, which is not stored; name its class by an import path" in said
    assert "callback webhook: its address is not stored; name a variable that has it: url_from" in said
    assert "token" not in said
    assert (tmp_path / "out").read_text().split() == ids_of(sweep)


def test_a_sweep_that_runs_or_has_no_callbacks_is_refused(tmp_path: Path) -> None:
    ended(tmp_path / "a", writes(tmp_path / "out"), has_ended=False)
    with pytest.raises(SpecError, match="has not ended: its callbacks are called as it runs; resume it"):
        deliver(SWEEP, str(tmp_path / "a"), 1.0)
    ended(tmp_path / "b")
    with pytest.raises(SpecError, match="has no callbacks"):
        deliver(SWEEP, str(tmp_path / "b"), 1.0)
