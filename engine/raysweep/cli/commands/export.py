"""`raysweep export`: a stored sweep in the formats of other tools."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import typer

from raysweep.cli.bars import Advance, progress_bar
from raysweep.cli.consoles import make_console, print_json
from raysweep.cli.exit_codes import DONE
from raysweep.cli.lookup import open_sweep
from raysweep.export.source import Exported
from raysweep.runs.folder import SweepFolder


def export(name: str, storage: str | None, to: str, out: str | None, is_json: bool) -> int:
    """Write the sweep, and say what was written where."""
    folder = open_sweep(name, storage)
    with progress_bar() as advance:
        made = _export(folder, to, out, advance)
    if not made.has_ended:
        note = f"note: {made.sweep_id} has not ended: this is what its journal holds now"
        make_console(is_stderr=True).print(note, soft_wrap=True)
    if is_json:
        print_json(asdict(made) | {"places": list(made.places)})
        return DONE
    typer.echo(f"{made.sweep_id}: {made.trials:,} trials, {made.reports:,} reports")
    for place in made.places:
        typer.echo(place)
    return DONE


def _export(folder: SweepFolder, to: str, out: str | None, advance: Advance) -> Exported:
    if to == "optuna":
        from raysweep.export.optuna_study import export_optuna

        return export_optuna(folder, _database(out, folder.sweep_id), advance)
    if to == "mlflow":
        from raysweep.export.mlflow_runs import export_mlflow

        return export_mlflow(folder, out, advance)
    from raysweep.export.tables import TableKind, export_tables

    kind: TableKind = "parquet" if to == "parquet" else "csv"
    return export_tables(folder, kind, Path(out or folder.sweep_id).expanduser(), advance)


def _database(out: str | None, sweep_id: str) -> str:
    """The URL of the database: of a file where a path is given, of one here without any."""
    given = out or f"{sweep_id}.db"
    return given if "://" in given else f"sqlite:///{Path(given).expanduser()}"
