"""Checkpoints with symbolic links: stored from the user's directory, copied from it, or taken over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.errors import SpecError
from raysweep.messages import TrialReturned
from tests.unit.worker.pairs import Worker

Report = Callable[[Path, str], None]


def _fill(folder: Path, target: str) -> None:
    (folder / "epoch=3.ckpt").write_text("weights")
    (folder / "who").symlink_to(target)


def copied(scratch: Path, target: str) -> None:
    scratch.mkdir()
    _fill(scratch, target)
    rs.report({"loss": 1.0}, checkpoint=scratch)


def awaited(scratch: Path, target: str) -> None:
    scratch.mkdir()
    _fill(scratch, target)
    rs.report({"loss": 1.0}, checkpoint=scratch, wait=True)


def handed_over(scratch: Path, target: str) -> None:
    with rs.new_checkpoint() as folder:
        _fill(folder, target)
        rs.report({"loss": 1.0}, checkpoint=folder)


@pytest.mark.parametrize("report", [copied, awaited, handed_over])
def test_a_link_inside_is_stored_as_what_it_leads_to(report: Report, tmp_path: Path) -> None:
    worker = Worker(tmp_path / "storage")

    def train(config: dict[str, Any]) -> None:
        report(tmp_path / "scratch", "epoch=3.ckpt")

    worker.run(train)
    assert worker.saved(0, tmp_path) == ["weights"]
    assert isinstance(worker.ends[0], TrialReturned)


@pytest.mark.parametrize("target", ["/etc/hostname", "../elsewhere", "not-there"])
@pytest.mark.parametrize("report", [copied, awaited, handed_over])
def test_a_link_out_of_it_is_refused_where_it_is_reported(
    report: Report, target: str, tmp_path: Path
) -> None:
    worker = Worker(tmp_path / "storage")

    def train(config: dict[str, Any]) -> None:
        with pytest.raises(SpecError, match=rf"who is a symbolic link to {target}, which .* relative path"):
            report(tmp_path / "scratch", target)

    worker.run(train)
    assert worker.saved(0, tmp_path) == []
    assert isinstance(worker.ends[0], TrialReturned)


def test_a_file_with_several_names_is_copied_once(tmp_path: Path) -> None:
    from raysweep.worker.checkpoints.captures import Captures

    (tmp_path / "source").mkdir()
    _fill(tmp_path / "source", "epoch=3.ckpt")
    (tmp_path / "copy").mkdir()
    capture = Captures(lambda: tmp_path / "copy", lambda: None).take(tmp_path / "source")
    files = [capture.folder / name for name in ("epoch=3.ckpt", "who")]
    assert files[0].stat().st_ino == files[1].stat().st_ino
    assert not any(file.is_symlink() for file in files)
