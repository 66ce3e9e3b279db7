"""A notebook: cells in a real IPython kernel, spoken to as Jupyter does, and its interrupt button."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

pytestmark = [pytest.mark.servers, pytest.mark.ray, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
DEFINE = """
import time
from pathlib import Path
import raysweep as rs

PACE = Path("pace").absolute()
PACE.write_text("0.1")

def train(config):
    for step in range(1, 601):
        rs.report({"loss": config["x"] / step})
        time.sleep(float(Path(config["pace"]).read_text()))

SPEC = rs.SweepSpec(
    name="cells", trainable=train, param_space={"x": {"uniform": [1, 2]}, "pace": str(PACE)},
    metric="loss", mode="min", num_samples=3, seed=1, stop={"grace_s": 1}, storage_path="store",
)
"""
RUN = "outcome = rs.run_sweep(SPEC, key='k', num_cpus=2)"


@dataclass
class Cell:
    """What a cell showed: its streams as one text, and the error that it ended with."""

    text: str = ""
    error: str = ""
    traceback: str = ""


class Notebook:
    """One kernel and its channels."""

    def __init__(self, folder: Path) -> None:
        path = os.pathsep.join(map(str, (ROOT, ROOT / "engine")))
        self.manager = KernelManager(transport="ipc", ip=str(folder / "kernel"))
        self.manager._kernel_spec = KernelSpec(
            argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], language="python"
        )
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TTY_")}
        self.manager.start_kernel(cwd=str(folder), env=environment | {"PYTHONPATH": path})
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=120)

    def run(self, code: str, *, interrupt_at: str | None = None) -> Cell:
        """Run a cell to its end; press the interrupt button once its text holds `interrupt_at`."""
        cell, asked = Cell(), self.client.execute(code)
        while True:
            message: dict[str, Any] = self.client.get_iopub_msg(timeout=240)
            if message["parent_header"].get("msg_id") != asked:
                continue
            content = message["content"]
            match message["msg_type"]:
                case "stream":
                    cell.text += content["text"]
                case "execute_result" | "display_data":
                    cell.text += content["data"]["text/plain"]
                case "error":
                    cell.error = f"{content['ename']}: {content['evalue']}"
                    cell.traceback = "\n".join(content["traceback"])
                case "status" if content["execution_state"] == "idle":
                    return cell
            if interrupt_at is not None and interrupt_at in cell.text:
                interrupt_at = None
                self.manager.interrupt_kernel()

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[Notebook]:
    opened = Notebook(tmp_path)
    yield opened
    opened.close()


@pytest.mark.slow
def test_a_sweep_is_interrupted_and_the_next_cell_resumes_it(notebook: Notebook) -> None:
    assert notebook.run(DEFINE).error == ""
    first = notebook.run(RUN, interrupt_at="ahead loss")
    assert re.fullmatch(
        r"SweepInterrupted: sweep 'cells-\w+' was interrupted; 0 of 3 trials ended: 0 completed; "
        r"no trial with loss has ended; ahead loss [\d.]+ "
        r"\(trial 0000\d\): .*; run it again with the same key to resume it",
        first.error,
    ), first
    assert "cluster/run.py" not in first.traceback
    assert re.search(r"^\[cells \d:\d\d\] starting Ray$", first.text, re.MULTILINE), first.text
    assert "\x1b" not in first.text, "a cell's output has no cursor to move"
    assert "idget" not in first.text, "neither Ray's nor tqdm's word about ipywidgets"
    assert notebook.run("import ray; ray.is_initialized()").text == "False", "its Ray ended with it"

    again = notebook.run(f"PACE.write_text('0')\n{RUN}\noutcome.status")
    assert (again.error, again.text[-11:]) == ("", "'completed'"), again
    assert "3 of 3 trials ended: 3 completed" in again.text
    assert notebook.run("len(outcome), outcome.best.score").text.startswith("(3, 0.00171")
