"""`raysweep deliver`: what the callbacks of an ended sweep missed is delivered, each event once."""

from __future__ import annotations

from dataclasses import replace
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
from tests.unit.delivery.servers import Receiver

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


@pytest.mark.parametrize("kind", ["mlflow", "otel", "webhook", "tensorboard"])
def test_an_address_that_only_the_storage_names_gets_nothing(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes the storage would else get the credentials of the person who delivers."""
    server = Receiver()
    field = {"mlflow": "tracking_uri", "otel": "endpoint", "webhook": "url", "tensorboard": "logdir"}[kind]
    place = str(tmp_path / "elsewhere") if kind == "tensorboard" else server.url
    for name in ("MLFLOW_TRACKING_TOKEN", "OTEL_EXPORTER_OTLP_HEADERS"):
        monkeypatch.setenv(name, "a=tok-secret")
    sweep = ended(tmp_path / "store", writes(tmp_path / "out"))
    record = sweep.folder.read_spec()
    assert record is not None
    forged = dict(record.spec) | {"callbacks": [{kind: {field: place}}]}
    sweep.folder.replace_spec(replace(record, spec=forged))
    with server.running():
        assert deliver(SWEEP, str(tmp_path / "store"), 5.0) == 1
    assert (server.requests, (tmp_path / "elsewhere").exists()) == (0, False)
    assert f"its {field} comes from the storage; if you know it: --to {place}" in capfd.readouterr().err


@pytest.mark.parametrize("by", ["argument", "variable"])
def test_an_address_that_its_user_names_too_gets_what_was_missed(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Receiver()
    ended(tmp_path / "store", CallbackSpec.of({"mlflow": {"tracking_uri": server.url}}))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url if by == "variable" else "http://127.0.0.1:1")
    with server.running():
        deliver(SWEEP, str(tmp_path / "store"), 1.0, [server.url] if by == "argument" else [])
    assert server.requests > 0
