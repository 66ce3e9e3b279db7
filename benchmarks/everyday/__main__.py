"""`python -m benchmarks everyday [NAME …] [--against TREE] [--rounds N] [--json FILE]`
`python -m benchmarks everyday --table FILE … [--page PAGE]`

A table on stdout, then a line for each figure that is slower or grows faster than it may. TREE is a checkout
of another commit, a revision of git, or `last`: the last release, or, before the first one, the commit of a
day before. Its own benchmarks are not used. `--table` measures nothing: it makes one table of files of
`--json`, and puts it into `--page`, such as docs/performance.md, where one was.

Exit codes: 0 all within their limits, 1 some not, 2 bad input.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from benchmarks.everyday.comparing import MAX_EXPONENT, MAX_RATIO, ROOT, exceeding, joined, run, table
from benchmarks.everyday.earlier import earlier
from benchmarks.everyday.figures import FIGURES
from benchmarks.measure import Json, machine

MIN_ROUNDS = 3
BEGINS = "<!-- python -m benchmarks everyday --table -->\n```\n"
"""Where a page has the table."""


def main(arguments: Sequence[str]) -> int:
    """Measure, print the table, return the exit code."""
    asked = _parse(arguments)
    if asked.table:
        text = joined([json.loads(file.read_text()) for file in asked.table])
        print(text)
        if asked.page is not None:
            asked.page.write_text(with_table(asked.page.read_text(), text))
        return 0
    try:
        found = _measured(asked)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    above = exceeding(found["figures"])
    print(table(found["figures"]))
    print("\n".join(above) or f"no ratio above {MAX_RATIO}, no exponent above {MAX_EXPONENT}")
    if asked.json is not None:
        asked.json.write_text(json.dumps(found, indent=2) + "\n")
    return int(bool(above))


def with_table(page: str, text: str) -> str:
    """The page with this table in place of the one behind `BEGINS`. Raises: ValueError: it has none."""
    before, _, rest = page.partition(BEGINS)
    end = rest.index("```\n")
    return f"{before}{BEGINS}{text}\n{rest[end:]}"


def _measured(asked: argparse.Namespace) -> Json:
    """The figures, and what they were measured on and against. Raises: ValueError: there is no such tree."""
    with earlier(asked.against, ROOT) if asked.against else nullcontext() as tree:
        found = run(
            asked.rounds,
            against=tree,
            names=asked.names,
            say=lambda text: print(text, file=sys.stderr, flush=True),
        )
    return found | {"machine": machine(), "against": asked.against}


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks everyday", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures or groups; default: all")
    parser.add_argument("--against", default="", metavar="TREE", help="a checkout, a revision, or last")
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS, help="default and least to be quoted: 3")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as JSON")
    parser.add_argument("--table", nargs="+", type=Path, metavar="FILE", help="files of --json as one table")
    parser.add_argument("--page", type=Path, metavar="PAGE", help="with --table: the page that has it")
    asked = parser.parse_args(arguments)
    known = {each.name for each in FIGURES} | {each.group for each in FIGURES}
    if unknown := [name for name in asked.names if name not in known]:
        parser.error(f"no figure or group {unknown[0]!r}; there are {', '.join(sorted(known))}")
    if asked.rounds < 1:
        parser.error("--rounds takes 1 or more")
    return asked


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
