"""core-scale: what the pure core costs as sweeps and clusters grow; asks beside the loop; the first resume.

`core_scale`: more trials. `core_slots`: more slots, every timeout on. `asking`: TPE on its thread.
`first_resume`: a sweep of a million events taken up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks import asking, core_scale, core_slots, first_resume
from benchmarks.measure import Json, target


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How large a run is; a test runs it small."""

    trials: tuple[int, ...] = core_scale.SIZES
    slots: tuple[int, ...] = core_slots.SLOTS
    slot_events: int = core_slots.EVENTS
    asked: tuple[int, ...] = asking.SIZES
    searches: tuple[str, ...] = tuple(asking.KINDS)
    searched: int = asking.KINDS_SIZE
    resumed_trials: int = first_resume.TRIALS
    resumed_events: int = first_resume.EVENTS


TINY = Sizes(
    trials=(20, 40),
    slots=(2, 4),
    slot_events=200,
    asked=(15,),
    searches=("random",),
    searched=15,
    resumed_trials=20,
    resumed_events=400,
)


def run(rounds: int, *, of: Sizes = Sizes(), is_tiny: bool = False) -> Json:
    """Once, whatever `rounds` is: processor time, and the best of three replays within."""
    of = TINY if is_tiny else of
    sizes = of.trials
    figures, slots = core_scale.run(sizes), core_slots.run(of.slots, of.slot_events)
    asks = asking.run(of.asked, of.searches, of.searched)
    resumed = first_resume.run(of.resumed_trials, of.resumed_events)
    what = f"the core alone, {' and '.join(map(str, sizes))} trials, {of.slots[-1]} slots"
    return {
        "what": what,
        "schedulers": figures,
        "slots": slots,
        "asks": asks,
        "first_resume": resumed,
        "targets": [
            *_by_trials(figures, sizes),
            *_by_slots(slots, of.slots),
            *_of_asks(asks),
            *_of_resume(resumed),
        ],
    }


def _by_trials(figures: dict[str, Any], sizes: tuple[int, ...]) -> list[Json]:
    targets = []
    largest = str(sizes[-1])
    for name, figure in figures.items():
        at = figure["trials"][largest]
        targets += [
            target(
                f"{name}: cost of an event, {largest} / {sizes[0]} trials", figure["cost_growth"], at_most=1.3
            ),
            target(f"{name}: events/s at {largest} trials", at["events_per_s"], at_least=50_000),
            target(f"{name}: bytes a finished trial", at["bytes_per_trial"], at_most=1024),
        ]
    return targets


def _by_slots(slots: dict[str, Any], sizes: tuple[int, ...]) -> list[Json]:
    few, many = sizes[0], sizes[-1]
    return [
        target(f"{phase}: cost of an event, {many} / {few} slots", figure["cost_growth"], at_most=1.3)
        for phase, figure in slots.items()
    ]


def _of_asks(asks: dict[str, Any]) -> list[Json]:
    trials, figure = list(asks["tpe"].items())[-1]
    return [target(f"ms that the loop waits for an ask at {trials} trials", figure["lag_ms"], at_most=20)]


def _of_resume(resumed: dict[str, Any]) -> list[Json]:
    figure = resumed["with_snapshots"]
    return [
        target("s of the first resume of 1M events", figure["s"], at_most=5),
        target("MiB of the first resume at its most", figure["peak_mib"], at_most=300),
        target("ms that the loop waits for a snapshot", resumed["freeze_ms"], at_most=20),
    ]
