"""`python -m tests.mutation [--seed N] [--mutants N] [--only PART] [--json FILE] [--again FILE] [--list]`

Draws mutants of the engine by a seed, runs the tests on each, and shows those that no test has noticed.
Mutants that `equivalents.toml` explains are passed over. The summary goes to stdout, progress to stderr.

Exit codes: 0 at least 95 % were killed, 1 fewer, 2 bad input, or tests that fail without a mutant.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from tests.mutation import population, scope
from tests.mutation.execution import OK, Laboratory, Trial, laboratory
from tests.mutation.population import Mutant

ROOT = Path(__file__).parents[2]
AT_LEAST_PERCENT = 95.0
LOG_LINES = 30


def main() -> int:
    """Do what was asked for, return the exit code."""
    asked = parse(sys.argv[1:])
    mutants = sample(asked)
    if asked.list:
        for mutant in mutants:
            print(describe(mutant))
        return 0
    files = {mutant.file for mutant in mutants}
    results: list[Trial] = []
    with (
        tempfile.TemporaryDirectory(prefix="raysweep-mutation-") as folder,
        laboratory(ROOT, Path(folder), files) as lab,
    ):
        if not check_baseline(lab, scope.tests_of(files)):
            return 2
        for mutant in mutants:
            results.append(lab.test(mutant))
            say(f"{len(results):4d}/{len(mutants)} {verdict(results[-1])}")
            save(asked, results)
    print(summary(asked, results))
    return int(share(results) < AT_LEAST_PERCENT)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="decides which mutants are drawn; default: 1")
    parser.add_argument("--mutants", type=int, default=200, help="how many; default: 200")
    parser.add_argument("--only", default="", metavar="PART", help="modules with this in their path")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every mutant and its fate there")
    parser.add_argument("--again", type=Path, metavar="FILE", help="only those that survived in this JSON")
    parser.add_argument("--list", action="store_true", help="show the mutants, run nothing")
    asked = parser.parse_args(arguments)
    if asked.mutants < 1:
        parser.error("--mutants takes 1 or more")
    if not population.all_files(ROOT, asked.only):
        parser.error(f"no module in scope has {asked.only!r} in its path")
    return asked


def sample(asked: argparse.Namespace) -> list[Mutant]:
    """The mutants to run, without those that are known to change nothing."""
    known = {entry.likeness for entry in population.equivalents()}
    if asked.continuing is not None:
        return list(survivors_of(asked.continuing))
    drawn = population.draw(ROOT, population.all_files(ROOT, asked.only), asked.seed)
    return list(islice((mutant for mutant in drawn if mutant.likeness not in known), asked.mutants))


def survivors_of(file: Path) -> Iterator[Mutant]:
    """The mutants that survived in an earlier run, as the code now has them."""
    entries = [entry for entry in json.loads(file.read_text())["mutants"] if entry["fate"] == "survived"]
    wanted = {
        (e["file"], e["operator"], population.flat(e["before"]), population.flat(e["after"])) for e in entries
    }
    for mutant in population.draw(ROOT, sorted({entry["file"] for entry in entries}), seed=0):
        if mutant.likeness in wanted:
            yield mutant


def check_baseline(lab: Laboratory, tests: list[str]) -> bool:
    """Whether the tests pass on the code as it is; what they print is shown where not."""
    say(f"without a mutant: {' '.join(tests)} …")
    answer = lab.baseline()
    if answer["code"] == OK:
        say(f"without a mutant: passed in {answer['took_s']:.0f} s")
        return True
    say("\n".join(["these tests fail without a mutant:", *answer["log"].splitlines()[-LOG_LINES:]]))
    return False


def save(asked: argparse.Namespace, results: list[Trial]) -> None:
    """Write what there is so far: a run that is interrupted keeps it."""
    if asked.json is None:
        return
    document = {
        "seed": asked.seed,
        "asked_for": asked.mutants,
        "only": asked.only,
        "killed_percent": round(share(results), 2),
        "mutants": [as_json(result) for result in results],
    }
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def as_json(result: Trial) -> dict[str, Any]:
    """One mutant and its fate, without the code of its whole module."""
    mutant = asdict(result.mutant)
    del mutant["code"]
    return {**mutant, "fate": result.fate, "by": result.by, "took_s": round(result.took_s, 1)}


def summary(asked: argparse.Namespace, results: list[Trial]) -> str:
    """What came out, room by room, with every survivor."""
    lines = [f"{room:<12} {killed:4d} of {total:4d} killed" for room, killed, total in by_room(results)]
    hung = sum(result.fate == "hung" for result in results)
    lines.append(
        f"seed {asked.seed}: {share(results):.1f} % of {len(results)} mutants killed ({hung} of them hung); "
        f"at least {AT_LEAST_PERCENT:g} % are wanted"
    )
    survivors = [result.mutant for result in results if result.fate == "survived"]
    if survivors:
        lines += ["", "No test has noticed:", *map(describe, survivors), ""]
        lines.append("Write the test, or explain it in tests/mutation/equivalents.toml.")
    return "\n".join(lines)


def by_room(results: Iterable[Trial]) -> Iterator[tuple[str, int, int]]:
    """Room, killed, total."""
    total, killed = Counter[str](), Counter[str]()
    for result in results:
        room = Path(result.mutant.file).relative_to(scope.ENGINE).parts[0]
        total[room] += 1
        killed[room] += result.fate != "survived"
    for room in sorted(total):
        yield room, killed[room], total[room]


def share(results: list[Trial]) -> float:
    """Percent that did not survive."""
    return 100 * sum(result.fate != "survived" for result in results) / max(1, len(results))


def describe(mutant: Mutant) -> str:
    """A mutant as a small diff."""
    before = [f"    - {line}" for line in mutant.before.splitlines()]
    after = [f"    + {line}" for line in mutant.after.splitlines()]
    return "\n".join([f"  {mutant.file}:{mutant.line} [{mutant.operator}]", *before, *after])


def verdict(result: Trial) -> str:
    """A mutant's fate on one line."""
    mutant = result.mutant
    where = f"{mutant.file.removeprefix(scope.ENGINE + '/')}:{mutant.line} {mutant.operator}"
    return f"{result.fate:8} {result.took_s:5.1f} s  {where}{f'  by {result.by}' if result.by else ''}"


def say(text: str) -> None:
    """Progress goes to stderr."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
