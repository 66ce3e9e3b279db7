"""The way to a sweep's report: the page of a dashboard that the environment names, else a command.

Nothing makes a report unasked: it is made when the link is opened, or the command is run.
"""

from __future__ import annotations

import os
import shlex
from typing import Final
from urllib.parse import quote, urlsplit

from raysweep.documents.validation import show
from raysweep.errors import SpecError

DASHBOARD_VARIABLE: Final = "RAYSWEEP_DASHBOARD_URL"
"""The environment variable with the address of a `raysweep dashboard` for the storage path."""


def report_command(sweep_id: str, storage: str) -> str:
    """The command that makes the report and opens it."""
    return shlex.join(["raysweep", "report", sweep_id, "--storage", storage, "--open"])


def report_url(sweep_id: str) -> str:
    """The sweep's page at the dashboard; empty where no dashboard is named.

    Raises: SpecError: The variable has no web address.
    """
    address = os.environ.get(DASHBOARD_VARIABLE, "").strip()
    if not address:
        return ""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SpecError(DASHBOARD_VARIABLE, f"{show(address)} is not a web address", "write https://host")
    if parts.username is not None or parts.query or parts.fragment:
        problem = "has a user, a query or a fragment, which every message would show"
        raise SpecError(DASHBOARD_VARIABLE, problem, "write https://host")
    return f"{address.rstrip('/')}/run/{quote(sweep_id, safe='')}"


def report_place(sweep_id: str, storage: str) -> str:
    """The page where there is one, else the command."""
    try:
        return report_url(sweep_id) or report_command(sweep_id, storage)
    except SpecError:
        return report_command(sweep_id, storage)
