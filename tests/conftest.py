"""How the tests are shared out to two processes (`pytest -n 2 --dist loadgroup`)."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
# These start clusters of their own; the others share one Ray, and must not get in each other's way on it.
APART = frozenset({"jobs", "prefect"})


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need Ray run one after the other; those of a group in one process."""
    for item in items:
        if item.get_closest_marker("ray") is not None:
            room = item.path.relative_to(TESTS).parts[0]
            item.add_marker(pytest.mark.xdist_group("apart" if room in APART else "ray"))
