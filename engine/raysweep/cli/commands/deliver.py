"""`raysweep deliver`: what the callbacks of an ended sweep missed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Mapping

import typer

from raysweep.cli.exit_codes import DONE, FAILED
from raysweep.cli.lookup import command, open_run
from raysweep.delivery.beside import Beside
from raysweep.documents.code.trainable import PYTHON_ONLY
from raysweep.errors import SpecError
from raysweep.hooks.loading import load_callbacks
from raysweep.hooks.spec import MASK, CallbackSpec
from raysweep.runs.folder import SweepFolder


def deliver(name: str, storage: str | None, within_s: float, to: Collection[str] = ()) -> int:
    """Call the callbacks with all events that they have not got, and say what is still left.

    Args:
        name, storage: The sweep.
        within_s: How long it may take.
        to: Addresses and folders that callbacks may send to, or write in, though the storage names them.
    """
    folder = open_run(name, storage)
    record = folder.read_spec()
    if record is None or folder.read_outcome() is None:
        fix = f"resume it: {command('resume', folder.sweep_id, folder.store.url)}"
        raise SpecError("SWEEP", f"{folder.sweep_id} has not ended: its callbacks are called as it runs", fix)
    given = tuple(CallbackSpec.of(each) for each in record.spec.get("callbacks", ()))
    if not given:
        raise SpecError("SWEEP", f"{folder.sweep_id} has no callbacks", "see `raysweep status` for others")
    lost = {callback.kind for callback in given if _why_not(callback, to)}
    for callback in given:
        if why := _why_not(callback, to):
            typer.echo(f"callback {callback.kind}: {why}", err=True)
    callbacks = tuple(callback for callback in given if callback.kind not in lost)
    load_callbacks(_Called(callbacks, folder))
    beside = Beside(folder, callbacks, idle_s=within_s, most_s=within_s)
    beside.start()
    notes = beside.finish() or ()
    for note in notes:
        typer.echo(note, err=True)
    if notes or lost:
        return FAILED
    names = ", ".join(callback.kind for callback in callbacks)
    typer.echo(f"all events of {folder.sweep_id} are delivered to {names}")
    return DONE


class _Called:
    def __init__(self, callbacks: tuple[CallbackSpec, ...], folder: SweepFolder) -> None:
        self.callbacks, self.storage_path = callbacks, folder.store.url


def _why_not(callback: CallbackSpec, to: Collection[str]) -> str:
    """The reason why a callback cannot be made of what is stored; empty: it can."""
    if callback.kind.startswith(PYTHON_ONLY):
        return "it is an object of Python, which is not stored; name its class by an import path"
    options = callback.options.model_dump(mode="json")
    secrets: tuple[str, ...] = getattr(callback.options, "secret_fields", ())
    if any(MASK in str(options.get(field)) for field in secrets):
        return "its address is not stored; name a variable that has it: url_from"
    places: Mapping[str, str] = getattr(callback.options, "places", {})
    for field, variable in places.items():
        place = options.get(field)
        if place and place not in to and place != os.environ.get(variable, "").strip().rstrip("/"):
            return f"its {field} comes from the storage; if you know it: --to {shlex.quote(place)}"
    return ""
