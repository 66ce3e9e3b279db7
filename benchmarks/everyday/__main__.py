"""`python -m benchmarks everyday [NAME …] [--against TREE] [--rounds N] [--json FILE]`

A table on stdout, then a line for each figure that is slower or grows faster than it may. TREE is a checkout
of another commit (`git worktree add --detach ../before COMMIT`); its own benchmarks are not used.

Exit codes: 0 all within their limits, 1 some not, 2 bad input.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.everyday.comparing import MAX_EXPONENT, MAX_RATIO, exceeding, run, table
from benchmarks.everyday.figures import FIGURES
from benchmarks.measure import machine

MIN_ROUNDS = 3


def main(arguments: Sequence[str]) -> int:
    """Measure, print the table, return the exit code."""
    asked = _parse(arguments)
    found = run(
        asked.rounds,
        against=asked.against,
        names=asked.names,
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )
    found |= {"machine": machine(), "against": str(asked.against or "")}
    above = exceeding(found["figures"])
    print(table(found["figures"]))
    print("\n".join(above) or f"no ratio above {MAX_RATIO}, no exponent above {MAX_EXPONENT}")
    if asked.json is not None:
        asked.json.write_text(json.dumps(found, indent=2) + "\n")
    return int(bool(above))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks everyday", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures or groups; default: all")
    parser.add_argument("--against", type=Path, metavar="TREE", help="a checkout of another commit")
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS, help="default and least to be quoted: 3")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as JSON")
    asked = parser.parse_args(arguments)
    known = {each.name for each in FIGURES} | {each.group for each in FIGURES}
    if unknown := [name for name in asked.names if name not in known]:
        parser.error(f"no figure or group {unknown[0]!r}; there are {', '.join(sorted(known))}")
    if asked.against is not None and not (asked.against / "engine" / "raysweep").is_dir():
        parser.error(f"--against: {asked.against} has no engine/raysweep")
    if asked.rounds < 1:
        parser.error("--rounds takes 1 or more")
    return asked


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
