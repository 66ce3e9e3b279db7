"""What each cell gave when it was run last: `devtools/versions/results.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from devtools.versions.cells import CELLS, CORE, Cell

FILE: Final = Path(__file__).with_name("results.json")
Results = dict[str, dict[str, Any]]
"""By the name of the cell: `running.Result` as JSON data."""


def read() -> Results:
    """What is kept; nothing where nothing was run yet."""
    found: Results = json.loads(FILE.read_text()) if FILE.exists() else {}
    return found


def write(results: Results) -> None:
    """Keep them, in the order of the cells; those of cells that are no more are left out."""
    ordered = {cell.name: results[cell.name] for cell in CELLS if cell.name in results}
    FILE.write_text(json.dumps(ordered, indent=1) + "\n")


def is_tested(cell: Cell, found: Mapping[str, Any] | None) -> bool:
    """Whether all parts passed that this product cannot do without."""
    if found is None or found["problem"]:
        return False
    return all(found["parts"].get(part, {}).get("result") == "passed" for part in CORE[cell.product])


def ranges(results: Results) -> dict[str, tuple[str, str]]:
    """Of each product the lowest and the highest version (major and minor) that passed."""
    found: dict[str, list[str]] = {}
    for cell in CELLS:
        if is_tested(cell, results.get(cell.name)):
            found.setdefault(cell.product, []).append(cell.minor)
    return {product: (minors[0], minors[-1]) for product, minors in found.items()}
