"""The last result of each cell: `devtools/versions/results.json`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from devtools.versions.cells import CELLS, CORE, LABELS, PYTHON, Cell
from raysweep.tested import PACKAGES

ROOT: Final = Path(__file__).resolve().parents[2]
FILE: Final = Path(__file__).with_name("results.json")
Results = dict[str, dict[str, Any]]
"""By the name of the cell: `running.Result` as JSON data."""


def read() -> Results:
    """The kept results; empty where nothing was run yet."""
    found: Results = json.loads(FILE.read_text()) if FILE.exists() else {}
    return found


def write(results: Results) -> None:
    """Keep them, in the order of the cells; those of cells that are no more are left out."""
    ordered = {cell.name: results[cell.name] for cell in CELLS if cell.name in results}
    FILE.write_text(json.dumps(ordered, indent=1) + "\n")


def is_tested(cell: Cell, found: Mapping[str, Any] | None) -> bool:
    """True if all parts passed that this product cannot do without."""
    if found is None or found["problem"]:
        return False
    return all(found["parts"].get(part, {}).get("result") == "passed" for part in CORE[cell.product])


def pinned() -> dict[str, list[str]]:
    """The versions in the constraints: `make test` runs with them."""
    found: dict[str, list[str]] = {"python": [PYTHON]}
    for name in ("constraints.txt", "constraints-prefect-latest.txt"):
        for product, package in {**PACKAGES, "optuna": "optuna", "torch": "torch"}.items():
            for version in re.findall(rf"^{package}==(\d+\.\d+)", (ROOT / name).read_text(), re.MULTILINE):
                found.setdefault(product, []).append(version)
    return found


def ranges(results: Results) -> dict[str, tuple[str, str]]:
    """Of each product the lowest and highest version (major.minor) that passed, here or in `make test`."""
    found = pinned()
    for cell in CELLS:
        if is_tested(cell, results.get(cell.name)):
            found.setdefault(cell.product, []).append(cell.minor)
    order = [product for product in LABELS if product in found]
    return {
        product: (min(found[product], key=_numbers), max(found[product], key=_numbers)) for product in order
    }


def _numbers(minor: str) -> list[int]:
    return [int(part) for part in minor.split(".")]
