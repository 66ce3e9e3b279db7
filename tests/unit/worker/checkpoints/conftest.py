"""These tests look at all that lies in the staging folder: there is no cache of the node beside."""

from __future__ import annotations

import pytest

from raysweep.storage.checkpoints import node_cache


@pytest.fixture(autouse=True)
def no_node_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(node_cache.LIMIT, "0")
