"""`raysweep mcp`: serves the command line to agents, over standard input and output."""

from __future__ import annotations

import importlib.util

from raysweep.cli.exit_codes import DONE
from raysweep.cli.lookup import DEFAULT_STORAGE
from raysweep.errors import SpecError
from raysweep.storage.objects.opening import open_store


def serve(storage: str | None, *, allows_approval: bool, budget_key: str | None, is_here: bool) -> int:
    """Serve until standard input ends.

    Raises:
        SpecError: The extra `mcp` is not installed.
    """
    if importlib.util.find_spec("mcp") is None:
        raise SpecError("mcp", "requires mcp, which is not installed", "pip install raysweep[mcp]")
    from raysweep.mcp_server.server import make_server

    url = open_store(storage or DEFAULT_STORAGE).url
    server = make_server(url, allows_approval=allows_approval, budget_key=budget_key, is_here=is_here)
    server.run("stdio")
    return DONE
