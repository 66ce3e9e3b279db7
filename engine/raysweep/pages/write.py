"""Writes the report of a stored sweep or training to a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from raysweep.errors import SpecError
from raysweep.outcome.record import without_collector
from raysweep.pages.compare import Other
from raysweep.pages.document import make_document
from raysweep.pages.page import render
from raysweep.runs.folder import SweepFolder
from raysweep.runs.reading.naming.lookup import find_run_folder, find_sweep
from raysweep.runs.reading.reader import SweepReader
from raysweep.runs.reading.whole_sweep import OnProgress, WholeReader
from raysweep.runs.reading.whole_training import read_run


def write_report(
    sweep: str,
    path: str | os.PathLike[str] | None = None,
    *,
    storage: str | None = None,
    compare: Sequence[str] = (),
    on_progress: OnProgress | None = None,
) -> Path:
    """Write a sweep's report: one HTML file that needs nothing else. The sweep may still run.

    Args:
        sweep: Its id, an unambiguous beginning of the id, `NAME@latest`, `NAME@DATE`, or its folder's URI.
        path: The file, or a folder for `<sweep_id>.html`. Default: that file in the working directory. A
            file that is there is replaced.
        storage: The storage path; default: `~/raysweep`. A URI needs none.
        compare: Other sweeps to show beside it, named in the same way.
        on_progress: Is told what is done, how much of it is done, and how much there is; 0: not known.

    Returns:
        The file.

    Raises:
        SweepNotFoundError: There is no such sweep.
        SpecError: The file cannot be written.
        StorageError, SweepDamagedError, JournalDamagedError: The sweep cannot be read.
    """
    folder = find_run_folder(sweep, storage)
    others = others_of(compare, storage or folder.store.url)
    target = _target(path, folder.sweep_id)
    text = report_text(folder, others, on_progress)
    made = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        made.write_text(text, encoding="utf-8")
        made.replace(target)
    except OSError as error:
        made.unlink(missing_ok=True)
        raise _cannot_write(target, error.strerror or str(error)) from error
    return target


def report_text(
    folder: SweepFolder,
    others: Sequence[Other] = (),
    on_progress: OnProgress | None = None,
) -> str:
    """The report as HTML. Raises: as `write_report`."""
    with without_collector():
        whole = read_run(WholeReader(folder, on_progress=on_progress))
        if on_progress is not None:
            on_progress("writing the report", 0, 0)
        name = whole.status.name or folder.sweep_id
        document = make_document(whole, others)
        return render(f"{name}: {whole.status.status}", document, document["verdict"])


def others_of(names: Sequence[str], storage: str) -> list[Other]:
    """The sweeps to compare with. Raises: as `write_report`."""
    return [_other(find_sweep(name, storage)) for name in names]


def _other(folder: SweepFolder) -> Other:
    status = SweepReader(folder.store.url, folder.sweep_id, is_strict=True).read()
    record = folder.read_spec()
    assert status is not None
    assert record is not None
    return status, record


def _target(path: str | os.PathLike[str] | None, sweep_id: str) -> Path:
    target = Path(path).expanduser() if path is not None else Path(f"{sweep_id}.html")
    if target.is_dir():
        target = target / f"{sweep_id}.html"
    if not target.parent.is_dir():
        raise _cannot_write(target, "its folder does not exist")
    return target


def _cannot_write(target: Path, problem: str) -> SpecError:
    return SpecError(
        "--output", f"{target} cannot be written: {problem}", "name a file in a folder that exists"
    )
