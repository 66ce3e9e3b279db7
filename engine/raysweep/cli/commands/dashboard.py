"""`raysweep dashboard`: serves the dashboard of a storage path until Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import threading
import webbrowser

import typer

from raysweep.cli.exit_codes import DONE
from raysweep.pages.dashboard import Access, serving
from raysweep.pages.dashboard.access import TOKEN_VARIABLE
from raysweep.runs.reading.naming.lookup import DEFAULT_STORAGE


def serve(storage: str | None, host: str, port: int, *, is_opened: bool) -> int:
    """Serve until it is interrupted.

    Raises:
        SpecError: The address cannot be bound, or needs a token.
    """
    access = Access(host, os.environ.get(TOKEN_VARIABLE, ""))
    with serving(storage or DEFAULT_STORAGE, access, port) as (address, _):
        typer.echo(address)
        if access.token:
            typer.echo(f"open it once as {address}?token=TOKEN, with the value of {TOKEN_VARIABLE}")
        if is_opened:
            webbrowser.open(address)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
    return DONE
