"""core-scale: what the pure core costs as sweeps grow, (`core_scale`); beside itself at a smaller size."""

from __future__ import annotations

from benchmarks import core_scale
from benchmarks.measure import Json, target


def run(rounds: int, *, sizes: tuple[int, ...] = core_scale.SIZES) -> Json:
    """Once, whatever `rounds` is: processor time, and the best of three replays within."""
    figures = core_scale.run(sizes)
    largest = str(sizes[-1])
    targets = []
    for name, figure in figures.items():
        at = figure["trials"][largest]
        targets += [
            target(
                f"{name}: cost of an event, {largest} / {sizes[0]} trials", figure["cost_growth"], at_most=1.3
            ),
            target(f"{name}: events/s at {largest} trials", at["events_per_s"], at_least=50_000),
            target(f"{name}: bytes a finished trial", at["bytes_per_trial"], at_most=1024),
        ]
    what = f"the core alone, {' and '.join(map(str, sizes))} trials"
    return {"what": what, "schedulers": figures, "targets": targets}
