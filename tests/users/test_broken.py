"""Thirty trainables that are broken, each in its own way: what their author sees, in a pipe and on terminals.

The texts are in `golden/broken/`. After a change that is meant, RAYSWEEP_GOLDEN=write writes them anew.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raysweep.cli import main
from raysweep.specs import sweep_id
from tests.sampling import sampled

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

HERE = Path(__file__).parent
BROKEN = re.findall(r"^(?:async )?def (\w+)\(", (HERE / "programs/broken.py").read_text(), re.MULTILINE)
# One for each thing that can go wrong: the import, the call, what is reported, raised and killed.
EVERYDAY = {
    "raises", "missing_package", "takes_nothing", "other_metric", "array", "returns_nothing", "killed",
    "sys_exit", "odd_exception", "markup", "hangs", "file_for_checkpoint", "exits_well",
}  # fmt: skip
STYLE = re.compile(r"\x1b\[[0-9;]*m")
# What differs from one run to the next: times, where the progress is, the node, a temporary file.
VARIES = (
    (re.compile(r"(ended +)\d+ s ago, after \d+:\d\d"), r"\1T s ago, after T"),
    (re.compile(r"^\[broken \d:\d\d\]", re.MULTILINE), "[broken T]"),
    (re.compile(r"on node [0-9a-f]{8}"), "on node NODE"),
    (re.compile(r"'/tmp/tmp\w{8}'"), "'/tmp/tmpFILE'"),
)

_ENDS = re.compile(r"\[broken T\] (started|failed|completed)")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where they work: its name is as long everywhere, so that lines are folded in the same places."""
    with tempfile.TemporaryDirectory(prefix="rs", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def show(
    ray_cluster: object, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """What a command prints at so many columns (0: into a pipe), with its exit code."""

    def run(columns: int, *arguments: str) -> str:
        for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS"):
            monkeypatch.delenv(name, raising=False)
        if columns:
            monkeypatch.setenv("TTY_COMPATIBLE", "1")
            monkeypatch.setenv("TERM", "xterm-256color")
            monkeypatch.setenv("COLUMNS", str(columns))
        capsys.readouterr()
        code = main([*arguments])
        captured = capsys.readouterr()
        text = STYLE.sub("", captured.err + captured.out)
        where = f"{columns} columns" if columns else "pipe"
        return f"$ raysweep {' '.join(arguments)}  # {where}\n{text}exit code {code}\n\n"

    return run


@pytest.mark.parametrize("name", sampled(BROKEN, EVERYDAY.__contains__))
def test_broken(name: str, show: Callable[..., str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    shutil.copy(HERE / "programs/broken.py", folder / "broken.py")
    spec = {
        "name": "broken", "trainable": f"broken:{name}", "param_space": {"x": {"uniform": [0.5, 1]}},
        "metric": "loss", "mode": "min", "num_samples": 1, "seed": 1,
        "failure": {"max_failures": 0, "max_worker_deaths": 0, "report_timeout_s": 1.5},
    }  # fmt: skip
    Path("spec.json").write_text(json.dumps(spec))
    text = show(0, "sweep", "spec.json", "--key", "k", "--storage", "store")
    for columns in (60, 80, 120):
        text += show(columns, "status", sweep_id("broken", "k"), "--storage", "store")
    for what, instead in VARIES:
        text = what.sub(instead, text)
    lines = text.replace(str(folder), "FOLDER").splitlines(keepends=True)
    # How often it says how it goes depends on how long it takes.
    text = "".join(line for line in lines if not line.startswith("[broken") or _ENDS.match(line))
    golden = HERE / "golden/broken" / f"{name}.txt"
    if os.environ.get("RAYSWEEP_GOLDEN") == "write":
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()
