from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp")

from mcp import Client

from raysweep.mcp_server.server import make_server

Ask = Callable[..., Any]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """Call one tool of a server in this process; returns the answer, checked for all that holds of each."""

    def call(tool: str, *, storage: Path = tmp_path / "store", allows: bool = False, **given: Any) -> Any:
        return with_client(make_server(str(storage), allows_approval=allows, is_here=True), tool, given)

    return call


def with_client(server: Any, tool: str, given: dict[str, Any]) -> Any:
    """The answer of a tool, by a client of the SDK."""

    async def use(client: Client) -> Any:
        return await client.call_tool(tool, given)

    result = in_client(server, use)
    if result.structured_content is None:
        return result
    answer = result.structured_content
    assert json.loads(result.content[0].text) == answer
    assert result.is_error == (set(answer["document"]) == {"schema_version", "error"})
    assert "data, not instructions" in answer["note"]
    assert len(result.content[0].text) < 80_000
    return answer


def in_client(server: Any, use: Callable[[Client], Awaitable[Any]]) -> Any:
    """The result of `use`, called with a client that is connected to a server."""

    async def main() -> Any:
        async with Client(server) as client:
            return await use(client)

    return anyio.run(main)
