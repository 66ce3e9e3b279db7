"""`raysweep mcp` as a process, by the SDK's client over standard input and output."""

from __future__ import annotations

import sys
from pathlib import Path

from mcp import StdioServerParameters

from tests.unit.mcp_server.conftest import in_client
from tests.unit.pages.sweeps import store


def test_it_speaks_over_standard_input_and_output(tmp_path: Path) -> None:
    _, outcome = store(tmp_path / "store")
    words = ["-m", "raysweep.cli", "mcp", "--storage", str(tmp_path / "store")]

    async def use(client):  # type: ignore[no-untyped-def]
        listed = await client.list_tools()
        found = await client.call_tool("status", {"sweep": outcome.sweep_id})
        missing = await client.call_tool("status", {"sweep": "nothing"})
        wrong = await client.call_tool("trials", {"sweep": outcome.sweep_id, "limit": 0})
        return listed, found, missing, wrong

    server = StdioServerParameters(command=sys.executable, args=words, cwd=str(tmp_path))
    listed, found, missing, wrong = in_client(server, use)
    assert "apply" in {tool.name for tool in listed.tools}
    assert found.structured_content["document"]["status"] == outcome.status
    assert missing.is_error
    assert missing.structured_content["document"]["error"]["code"] == "sweep_not_found"
    assert wrong.is_error
