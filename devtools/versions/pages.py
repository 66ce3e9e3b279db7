"""Writes docs/versions.md and the tested ranges of `raysweep.tested` from the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from devtools.versions.cells import CELLS, CORE, LABELS, Cell
from devtools.versions.results import Results, is_tested, ranges

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs/versions.md"
RANGES: Final = ROOT / "engine/raysweep/tested/ranges.py"
GAPS: Final = Path(__file__).with_name("gaps.md")
"""The gaps of each version, and their reasons: written by hand, the end of the page."""
NOT_RUN: Final = "not run"

HEAD: Final = """\
# Versions

Each row is an environment in which a sample of the tests ran. A cell shows how many tests passed,
and how many failed. *not run* means that nothing is known. *requires 2.56* means that this version is
too old for the part, and that the tests of its refusal passed.

`make test-versions` in a checkout runs all rows and writes this page.

A version counts as tested if the parts with a star passed, or if it is one of `constraints.txt`, with
which the whole suite runs at each change (Ray 2.60, Airflow 3.3, Prefect 3.7 and 3.9).

`raysweep doctor` and the first line of a driver's log say if Ray, Airflow or Prefect is outside the
tested range. A sweep runs there all the same.

A version inside the range that has no row was not tested.
"""


def write(results: Results) -> None:
    """Write the page and the ranges."""
    PAGE.write_text(page(results, GAPS.read_text()))
    RANGES.write_text(module(ranges(results)))


def page(results: Results, gaps: str) -> str:
    """docs/versions.md."""
    tested = ranges(results)
    rows = [f"| {LABELS[name]} | {low} to {high} |" for name, (low, high) in tested.items()]
    summary = "\n".join(["| product | tested |", "|---|---|", *rows])
    tables = [table(product, results) for product in LABELS]
    return "\n\n".join([HEAD.rstrip(), summary, *tables, gaps.strip()]) + "\n"


def table(product: str, results: Results) -> str:
    """The rows of one product."""
    cells = [cell for cell in CELLS if cell.product == product]
    parts = list(cells[0].sample)
    starred = [f"{part} *" if part in CORE[product] else part for part in parts]
    others = [name for name in ("python", "ray") if name != product]
    head = [LABELS[product], *(LABELS[name] for name in others), *starred, "date"]
    lines = [f"## {LABELS[product]}", "", _line(head), _line(["---"] * len(head))]
    for cell in cells:
        lines += [_line(_row(cell, parts, others, results.get(cell.name)))]
    problems = [
        f"{LABELS[product]} {cell.minor}: no environment: {results[cell.name]['problem']}"
        for cell in cells
        if results.get(cell.name, {}).get("problem")
    ]
    return "\n".join([*lines, *(["", *problems] if problems else [])])


def _row(
    cell: Cell, parts: Sequence[str], others: Sequence[str], found: Mapping[str, Any] | None
) -> list[str]:
    if found is None:
        return [cell.version, *["" for _ in others], *[NOT_RUN for _ in parts], ""]
    about = {"python": found["python"], "ray": found["packages"].get("ray", "")}
    name = cell.version if is_tested(cell, found) else f"{cell.version} (not tested)"
    shown = [_shown(found["parts"].get(part), cell.requires.get(part, "")) for part in parts]
    return [name, *(about[each] for each in others), *shown, found["date"]]


def _shown(part: Mapping[str, Any] | None, requires: str) -> str:
    if requires and part is not None and part["result"] == "passed":
        return f"requires {requires}"
    if part is None or part["result"] == "skipped":
        return NOT_RUN
    if part["result"] == "passed":
        return f"{part['passed']} passed"
    return f"{len(part['failed'])} failed, {part['passed']} passed"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def module(tested: Mapping[str, tuple[str, str]]) -> str:
    """The source of `raysweep.tested.ranges`."""
    rows = "".join(f'    "{name}": ("{low}", "{high}"),\n' for name, (low, high) in tested.items())
    return (
        '"""The lowest and highest tested version of each. Written by `python -m devtools.versions`."""\n\n'
        "from collections.abc import Mapping\nfrom typing import Final\n\n"
        f"RANGES: Final[Mapping[str, tuple[str, str]]] = {{\n{rows}}}\n"
    )
