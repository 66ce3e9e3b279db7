"""Compares the figures of this tree with those of another, and says which grew.

Each round measures each group of figures in a process of its own for each tree, in the order A B, B A, …, by
the same interpreter and packages: PYTHONPATH says whose raysweep it is. Figures that a tree does not have are
left out there. Most figures are processor time, which other work on the machine disturbs least.

The ratio is the median of the rounds' ratios at the larger size, each of the time for one unit of work. The
exponent is log(t2 / t1) / log(n2 / n1) of the medians, after the time at size 1, which stands for what is
fixed, is taken off both. What takes less than `FLOOR_S` beyond that is not judged: it would be a figure of
the clock.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.everyday.figures import FIGURES, Figure
from benchmarks.everyday.measuring import FIXED
from benchmarks.measure import Json, significant

MAX_RATIO: Final = 1.15
MAX_EXPONENT: Final = 1.2
FLOOR_S: Final = 0.004
GROUP_S: Final = 1200
"""The time limit of one process."""
ROOT: Final = Path(__file__).resolve().parents[2]
Rounds = list[Json]
"""By round: seconds by figure and size."""


def run(
    rounds: int,
    *,
    against: Path | None = None,
    names: Sequence[str] = (),
    say: Callable[[str], None] = lambda text: None,
) -> Json:
    """The figures whose name or group has one of `names`, or all; growth alone without another tree."""
    wanted = [each for each in FIGURES if not names or {each.name, each.group} & {*names}]
    trees = [ROOT] if against is None else [ROOT, against.resolve()]
    found: dict[Path, Rounds] = {tree: [] for tree in trees}
    for number in range(rounds):
        for tree in trees if number % 2 == 0 else trees[::-1]:
            found[tree].append({})
            for group in dict.fromkeys(each.group for each in wanted):
                say(f"round {number + 1}, {tree.name}, {group} …")
                found[tree][-1] |= _measure(tree, group)
    rows = [_row(each, found[ROOT], found[against.resolve()] if against else None) for each in wanted]
    return {"what": "figures of daily use", "rounds": rounds, "figures": rows, "targets": _targets(rows)}


def _measure(tree: Path, group: str) -> Json:
    with tempfile.TemporaryDirectory(prefix="raysweep-benchmark-") as folder:
        file = Path(folder, "found.json")
        path = os.pathsep.join([str(tree / "engine"), str(ROOT)])
        command = [sys.executable, "-m", "benchmarks.everyday.measuring", str(tree), group, str(file)]
        environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": ""}
        ran = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, timeout=GROUP_S, check=False
        )
        if ran.returncode:
            raise RuntimeError(f"{group} of {tree}: {ran.stderr.decode(errors='replace')[-2000:]}")
        measured: Json = json.loads(file.read_text())
        return measured


def _row(figure: Figure, ours: Rounds, theirs: Rounds | None) -> Json:
    small, large = map(str, figure.sizes)
    row: Json = {"figure": f"{figure.group}: {figure.name}", "grows": figure.grows, "sizes": figure.sizes}
    if absent := _absent(figure, ours):
        return row | {"absent": absent}
    fixed, few, many = (
        median(each[figure.name][size] for each in ours) for size in (str(FIXED), small, large)
    )
    row |= {"s": [significant(few), significant(many)], "exponent": exponent(figure.sizes, fixed, few, many)}
    if theirs is None or _absent(figure, theirs):
        return row | {"ratio": None}
    pairs = [(one[figure.name], other[figure.name]) for one, other in zip(ours, theirs, strict=True)]
    row["against_s"] = significant(median(other[large] for _, other in pairs))
    # By how much more work this tree does.
    row["work"] = round(median(one["units"] / other["units"] for one, other in pairs), 2)
    row["ratio"] = ratio([(one[large] / row["work"], other[large]) for one, other in pairs])
    return row


def _absent(figure: Figure, rounds: Rounds) -> str:
    return next((each[figure.name]["absent"] for each in rounds if "absent" in each[figure.name]), "")


def exponent(sizes: tuple[int, int], fixed: float, few: float, many: float) -> float | None:
    """The power of the size with which the time beyond `fixed` grows; None: too short to tell."""
    if few - fixed < FLOOR_S / 2 or many - fixed < FLOOR_S:
        return None
    return round(math.log((many - fixed) / (few - fixed)) / math.log(sizes[1] / sizes[0]), 2)


def ratio(pairs: Sequence[tuple[float, float]]) -> float | None:
    """How many times as long ours takes, by the round; None: too short to tell."""
    if max(max(pair) for pair in pairs) < FLOOR_S:
        return None
    return round(median(one / max(other, FLOOR_S / 4) for one, other in pairs), 2)


def exceeding(rows: Sequence[Json]) -> list[str]:
    """A line for each figure that is slower, or grows faster, than it may."""
    found: list[str] = []
    for row in rows:
        if (row.get("ratio") or 0.0) > MAX_RATIO:
            found.append(f"SLOWER: {row['figure']}: {row['ratio']} times as long (at most {MAX_RATIO})")
        if (row.get("exponent") or 0.0) > MAX_EXPONENT:
            grows = f"{row['grows']} to the power of {row['exponent']}"
            found.append(f"GROWS: {row['figure']}: {grows} (at most {MAX_EXPONENT})")
    return found


def table(rows: Sequence[Json]) -> str:
    """The figures as a table."""
    lines = [f"{'figure':40} {'sizes':>14} {'seconds':>18} {'other':>8} {'ratio':>6} {'exp.':>5}"]
    for row in rows:
        sizes = " / ".join(map(str, row["sizes"]))
        if "absent" in row:
            lines.append(f"{row['figure']:40} {sizes:>14}  not measured: {row['absent']}")
            continue
        seconds = " / ".join(f"{value:.3g}" for value in row["s"])
        other = f"{row['against_s']:.3g}" if "against_s" in row else "-"
        shown = ["-" if row.get(name) is None else f"{row[name]:.2f}" for name in ("ratio", "exponent")]
        lines.append(f"{row['figure']:40} {sizes:>14} {seconds:>18} {other:>8} {shown[0]:>6} {shown[1]:>5}")
    return "\n".join(lines)


def joined(results: Sequence[Json]) -> str:
    """Several comparisons as one table: of each its ratios, and the largest exponent."""
    names = list(dict.fromkeys(row["figure"] for result in results for row in result["figures"]))
    found = [{row["figure"]: row for row in result["figures"]} for result in results]
    heads = " ".join(f"{Path(result['against']).name[:12] or '-':>12}" for result in results)
    lines = [f"{'figure':38} {'sizes':>13} {'seconds':>15} {'exp.':>5} {heads}"]
    for name in names:
        rows = [each[name] for each in found if name in each and "absent" not in each[name]]
        if not rows:
            continue
        sizes, seconds = "/".join(map(str, rows[0]["sizes"])), "/".join(f"{s:.2g}" for s in rows[0]["s"])
        powers = [row["exponent"] for row in rows if row["exponent"] is not None]
        ratios = " ".join(f"{_ratio_of(each.get(name)):>12}" for each in found)
        power = f"{max(powers):.2f}" if powers else "-"
        lines.append(f"{name:38} {sizes:>13} {seconds:>15} {power:>5} {ratios}")
    return "\n".join(lines)


def _ratio_of(row: Json | None) -> str:
    """A ratio, and by how much more work was done where the trees do not do the same."""
    if row is None or row.get("ratio") is None:
        return "-"
    work = row.get("work", 1.0)
    return f"{row['ratio']:.2f}" if abs(work - 1.0) < 0.05 else f"{row['ratio']:.2f} ({work:.2f})"


def _targets(rows: Sequence[Json]) -> list[Json]:
    return [
        {
            "what": "figures above their limits",
            "value": len(exceeding(rows)),
            "at_most": 0,
            "met": not exceeding(rows),
        }
    ]
