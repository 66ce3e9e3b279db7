"""`python -m benchmarks [NAME …] [--rounds N] [--json FILE] [--tiny] [--list]`

`python -m benchmarks everyday --help` has options of its own.

Each benchmark runs in a process of its own; JSON on stdout, progress on stderr.

Exit codes: 0 every benchmark ran (whether its targets were met, the JSON says), 1 one failed, 2 bad input.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.everyday.__main__ import main as everyday
from benchmarks.measure import Json, machine
from benchmarks.registry import BENCHMARKS, left_out

MIN_ROUNDS = 3
LOG_LINES = 30
USUAL = [name for name, benchmark in BENCHMARKS.items() if not benchmark.is_extra]


def main() -> int:
    """Run what was asked for, print the JSON, return the exit code."""
    if sys.argv[1:2] == ["everyday"]:
        return everyday(sys.argv[2:])
    asked = parse(sys.argv[1:])
    if asked.list:
        for name, benchmark in BENCHMARKS.items():
            why = f" only by its name: {benchmark.why_left_out}" if benchmark.is_extra else ""
            print(f"{name:26}{why}".rstrip())
        return 0
    results: Json = {
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "rounds": asked.rounds,
        "note": "figures are medians of the rounds; contenders alternate; ratios say how many times as fast",
        "benchmarks": {},
        "targets": [],
    }
    for name in asked.names or USUAL:
        result = run(name, asked.rounds, is_tiny=asked.tiny)
        results["benchmarks"][name] = result
        results["targets"] += [{"benchmark": name, **goal} for goal in result.get("targets", [])]
    if not asked.names:
        results["left_out"] = left_out()
        say("left out, as they run only by their names (BENCH=NAME):")
        say("\n".join(f"  {name}: {why}" for name, why in left_out().items()))
    text = json.dumps(results, indent=2)
    print(text)
    if asked.json is not None:
        asked.json.write_text(text + "\n")
    return int(any("error" in result for result in results["benchmarks"].values()))


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; default: {', '.join(USUAL)}"
    )
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS, help="default and least to be quoted: 3")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the JSON there too")
    parser.add_argument(
        "--tiny", action="store_true", help="at sizes that measure nothing: to see that it runs"
    )
    parser.add_argument("--list", action="store_true", help="print the names, and which run only by them")
    asked = parser.parse_args(arguments)
    unknown = [name for name in asked.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    if asked.rounds < 1:
        parser.error("--rounds takes 1 or more")
    return asked


def run(name: str, rounds: int, *, is_tiny: bool = False) -> Json:
    """One benchmark in a process of its own; what it prints is shown where it fails."""
    say(f"{name}: {rounds} rounds …")
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="raysweep-benchmark-") as folder:
        file, log = Path(folder, "result.json"), Path(folder, "log")
        with log.open("wb") as output:
            command = [sys.executable, "-m", "benchmarks.child", name, str(rounds), str(file)]
            command += ["tiny"] if is_tiny else []
            # Whatever the machine says: else each process compiles all that it imports, ours and theirs.
            kept = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}
            code = subprocess.run(command, stdout=output, stderr=output, check=False, env=kept).returncode
        took_s = round(time.perf_counter() - began, 1)
        if code or not file.exists():
            tail = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
            say("\n".join([f"{name}: failed with exit code {code}", *tail]))
            return {"error": tail[-1] if tail else f"exit code {code}", "took_s": took_s}
        result: Json = json.loads(file.read_text())
    say(f"{name}: {took_s} s" + "".join(f"\n  {describe(goal)}" for goal in result.get("targets", [])))
    return {**result, "took_s": took_s}


def describe(goal: Json) -> str:
    """A target on one line."""
    limit = f"at least {goal['at_least']}" if "at_least" in goal else f"at most {goal['at_most']}"
    return f"{'met' if goal['met'] else 'MISSED'}: {goal['what']}: {goal['value']} ({limit})"


def say(text: str) -> None:
    """Progress goes to stderr."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
