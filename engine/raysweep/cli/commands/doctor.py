"""`raysweep doctor`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from rich.text import Text

from raysweep.cli.consoles import make_console, print_rows
from raysweep.cli.exit_codes import DONE, FAILED
from raysweep.cli.job_messages import JobHow
from raysweep.cli.spec_files import read_spec
from raysweep.jobs.checks import Check
from raysweep.jobs.doctor import examine
from raysweep.jobs.sync import run_sync
from raysweep.specs import SweepSpec, TrainSpec

COLOURS: Final = {
    "ok": "green",
    "slow": "yellow",
    "untested": "yellow",
    "failed": "bold red",
    "skipped": "dim",
}


def show_checks(
    address: str, path: str | None, storage: str | None, kind: str, job: JobHow, is_json: bool
) -> int:
    """Make the checks and show them, one line each; returns the exit code."""
    spec: SweepSpec | TrainSpec | None = None
    if path is not None and kind == "train":
        spec = read_spec(TrainSpec, path, storage=storage)
    elif path is not None:
        spec = read_spec(SweepSpec, path, storage=storage)
    checks = run_sync(lambda: examine(address, spec, options=job.options))
    if is_json:
        print_rows("checks", [asdict(check) for check in checks])
    else:
        _show(checks)
    return FAILED if any(check.status == "failed" for check in checks) else DONE


def _show(checks: list[Check]) -> None:
    console = make_console()
    width = max(len(check.name) for check in checks)
    for check in checks:
        text = f"{check.detail}; {check.fix}" if check.fix else check.detail
        line = Text.assemble(
            (f"{check.status:<8}", COLOURS[check.status]),
            f"  {check.name:<{width}}  ",
            " ".join(text.split()),
        )
        console.print(line, soft_wrap=True)
