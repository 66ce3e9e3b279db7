"""What the core alone costs: seconds an event, bytes a trial, as the number of trials grows.

    python -m benchmarks.core_scale

The events are those of a sweep of trials that report once and return at once, on 8 slots: configs are
suggested, trials begin, report and return. Carrying commands out costs nothing here: what is measured is
`step`, the codec, and the state, in seconds of processor time.
"""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Iterator
from time import process_time
from typing import Any

from raysweep.core import SweepState, decode, encode, step
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.specs import SweepSpec

SLOTS = 8
SIZES = (10_000, 100_000)
TRIAL_S = 0.001
SCHEDULERS: dict[str, Any] = {
    "fifo": "fifo",
    "asha": {"asha": {"max_t": 4, "grace_period": 1, "reduction_factor": 2}},
}


def run(sizes: tuple[int, ...] = SIZES) -> dict[str, Any]:
    """All figures, by scheduler and number of trials."""
    figures: dict[str, Any] = {}
    for name, scheduler in SCHEDULERS.items():
        by_size = {str(trials): measure(trials, scheduler) for trials in sizes}
        small, large = (by_size[str(trials)] for trials in (sizes[0], sizes[-1]))
        growth = large["step_us_per_event"] / small["step_us_per_event"]
        figures[name] = {"trials": by_size, "cost_growth": round(growth, 3)}
    return figures


def measure(trials: int, scheduler: Any) -> dict[str, float]:
    """One size: time without and with the codec, then memory in a run of its own."""
    spec = _spec(trials, scheduler)
    events = list(_events(spec, trials))
    step_s = _best_of(3, lambda: _replay(spec, events))
    lines: list[bytes] = []
    encode_s = _best_of(1, lambda: lines.extend(map(encode, events)))
    decode_s = _best_of(1, lambda: [decode(line) for line in lines])
    state = _replay(spec, events)
    before = process_time()
    snapshot = state.to_json()
    snapshot_s = process_time() - before
    del snapshot, state
    count = len(events)
    return {
        "events": count,
        "step_us_per_event": round(step_s / count * 1e6, 3),
        "encode_us_per_event": round(encode_s / count * 1e6, 3),
        "decode_us_per_event": round(decode_s / count * 1e6, 3),
        "events_per_s": round(count / step_s),
        "events_per_s_with_encode": round(count / (step_s + encode_s)),
        "bytes_per_trial": round(_bytes_per_trial(spec, lines, trials)),
        "journal_bytes_per_trial": round(sum(map(len, lines)) / trials),
        "snapshot_s": round(snapshot_s, 3),
    }


def _spec(trials: int, scheduler: Any) -> SweepSpec:
    plain = {
        "name": "scale",
        "trainable": "benchmarks.core_scale:run",
        "param_space": {"lr": {"loguniform": [1e-5, 1e-1]}},
        "metric": "loss",
        "mode": "min",
        "search": "random",
        "num_samples": trials,
        "scheduler": scheduler,
    }
    return SweepSpec.model_validate(plain)


def _events(spec: SweepSpec, trials: int) -> Iterator[ev.Event]:
    """The sweep's events: each command is answered at once, one slot's trial after the other's."""
    state = SweepState.create(spec, 1)
    at = 1000.0
    todo: list[ev.Event] = [
        ev.ControllerStarted(at=at, generation=1),
        ev.CapacityChanged(at=at, slots=SLOTS),
    ]
    while todo:
        event = todo.pop(0)
        yield event
        for command in step(state, event):
            match command:
                case cmd.SuggestConfigs():
                    end = min(trials, command.first + command.count)
                    configs = tuple({"lr": number * 1e-6} for number in range(command.first, end))
                    is_exhausted = end == trials
                    todo.append(
                        ev.ConfigsSuggested(
                            at=at, first=command.first, configs=configs, is_exhausted=is_exhausted
                        )
                    )
                case cmd.OpenSlot():
                    todo.append(ev.SlotOpened(at=at, slot=command.slot, node="node"))
                case cmd.StartTrial():
                    at += TRIAL_S / SLOTS
                    who: dict[str, int] = {"trial": command.trial, "attempt": command.attempt}
                    row: list[Any] = [(command.trial * 7919 % 10_007) / 10_007]
                    todo += [
                        ev.TrialStarted(at=at, **who),
                        ev.TrialReported(at=at + TRIAL_S, first=0, keys=("loss",), rows=(row,), **who),
                        ev.TrialReturned(at=at + TRIAL_S, **who),
                    ]
                case cmd.EndSweep():
                    todo.append(ev.SweepEnded(at=at))
                case _:
                    pass  # stops and recalls: the trial's end is under way already


def _replay(spec: SweepSpec, events: list[ev.Event]) -> SweepState:
    state = SweepState.create(spec, 1)
    for event in events:
        step(state, event)
    return state


def _best_of(times: int, call: Any) -> float:
    """Seconds of the fastest of some calls, without the garbage collector's pauses for other objects."""
    fastest = float("inf")
    for _ in range(times):
        gc.collect()
        gc.freeze()
        before = process_time()
        call()
        fastest = min(fastest, process_time() - before)
        gc.unfreeze()
    return fastest


def _bytes_per_trial(spec: SweepSpec, lines: list[bytes], trials: int) -> float:
    """Bytes that a state holds for each finished trial, its config included, replayed from the journal."""
    gc.collect()
    tracemalloc.start()
    state = SweepState.create(spec, 1)
    for line in lines:
        step(state, decode(line))
    gc.collect()
    size_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(state.trials) == trials
    return size_bytes / trials


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
