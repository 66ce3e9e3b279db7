"""The Python examples of the guide to testing."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

GUIDE = Path(__file__).parents[3] / "docs/guides/testing.md"


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The guide's test file, imported as a user's would be."""
    (tmp_path / "test_training.py").write_text("\n\n".join(blocks()[:2]))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "test_training", raising=False)
    import test_training  # type: ignore[import-not-found]

    found: ModuleType = test_training
    return found
