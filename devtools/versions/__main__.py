"""`python -m devtools.versions [--only CELL …]`: runs cells, keeps the results, writes docs/versions.md."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from devtools.versions import pages, results, running
from devtools.versions.cells import CELLS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cells that are asked for; 1 where a part that a version has to pass has failed."""
    parser = argparse.ArgumentParser(prog="python -m devtools.versions", description=__doc__)
    parser.add_argument("--only", nargs="*", default=None, metavar="CELL", help="such as ray or ray-2.50")
    parser.add_argument("--part", nargs="*", default=[], help="only these parts of the sample")
    parser.add_argument("--list", action="store_true", help="the names of all cells")
    parser.add_argument("--page", action="store_true", help="write the pages of what is kept; run nothing")
    asked = parser.parse_args(arguments)
    if asked.list:
        sys.stdout.write("".join(f"{cell.name}\n" for cell in CELLS))
        return 0
    wanted = [] if asked.page else [cell for cell in CELLS if _is_wanted(cell.name, cell.product, asked.only)]
    if not asked.page and not wanted:
        parser.error(f"no cell is named {' '.join(asked.only)}; --list shows the names")
    for cell in wanted:
        earlier = results.read().get(cell.name, {}).get("parts", {}) if asked.part else {}

        def keep(result: running.Result, name: str = cell.name, earlier: Any = earlier) -> None:
            found = result.to_dict()
            # Another run may have written since this one began.
            results.write(results.read() | {name: found | {"parts": {**earlier, **found["parts"]}}})

        running.run(cell, _say, keep, asked.part)
    kept = results.read()
    pages.write(kept)
    failed = [cell.name for cell in wanted if not results.is_tested(cell, kept.get(cell.name))]
    if failed:
        _say(f"did not pass: {' '.join(failed)}")
    return 1 if failed else 0


def _is_wanted(name: str, product: str, only: Sequence[str] | None) -> bool:
    return only is None or name in only or product in only


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
