"""How long the event loop stands still while a search is asked, and how long an ask takes.

    python -m benchmarks.asking

A study of trials in a space of 20 dimensions; the loop of a controller in small: a ticker every 5 ms, and a
socket that is written to and read from as a worker's is. Beside it the same asks made on the loop itself.

`lag_ms` is the longest that the loop came late, by the clock: on a machine with other work that is part of
it. `lag_cpu_ms` is the same in processor time of this process: what the ask's thread computed meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import socket
from random import Random
from time import monotonic, process_time, time
from typing import Any, Final

from raysweep.cluster.search_thread import Asking
from raysweep.cluster.suggestions import suggest
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.search import Result, Searcher, make_searcher, tell_end
from raysweep.specs import SweepSpec

Json = dict[str, Any]
SIZES: Final = (1_000, 3_000, 10_000)
RUNG: Final = 27
KINDS: Final[dict[str, Json]] = {
    kind: {"search": kind} for kind in ("random", "tpe", "cma_es", "gp", "auto", "nsga2")
} | {
    "nsga3": {"search": "nsga3", "metric": ["loss", "size", "time", "cost"], "mode": ["min"] * 4},
    "tpe, 2 metrics": {"search": "tpe", "metric": ["loss", "size"], "mode": ["min", "min"]},
    "tpe, 3 metrics": {"search": "tpe", "metric": ["loss", "size", "time"], "mode": ["min"] * 3},
    "tpe, a constraint": {"search": "tpe", "constraints": ["size <= 1"]},
    "bohb": {"search": "bohb", "scheduler": {"hyperband": {"max_t": RUNG}}},
}
KINDS_SIZE: Final = 10_000
DIMENSIONS: Final = 20
ASKS: Final = 5
TICK_S: Final = 0.005
SENDS: Final = 4


def run(
    sizes: tuple[int, ...] = SIZES, kinds: tuple[str, ...] = tuple(KINDS), kinds_size: int = KINDS_SIZE
) -> dict[str, Any]:
    """Milliseconds of TPE, by number of trials in the study; and of each search at one number of them."""
    return {
        "tpe": {str(trials): _measure(trials, "tpe") for trials in sizes},
        "searches": {"trials": kinds_size, **{kind: _measure(kinds_size, kind) for kind in kinds}},
    }


def _measure(trials: int, kind: str) -> dict[str, float]:
    searcher = searcher_after(trials, kind)
    # What is made of all results at once, such as generations, is made once.
    suggest(searcher, cmd.SuggestConfigs(first=trials, count=1), 0.0)
    idle = asyncio.run(_lag(searcher, kind, trials + 1, 0))
    threaded = asyncio.run(_lag(searcher, kind, trials + 1, ASKS))
    before = monotonic()
    for number in range(trials + 1 + ASKS, trials + 1 + 2 * ASKS):
        suggest(searcher, cmd.SuggestConfigs(first=number, count=1), 0.0)
    on_loop_s = (monotonic() - before) / ASKS
    before_cpu = process_time()
    for number in range(trials + 1 + 2 * ASKS, trials + 1 + 3 * ASKS):
        suggest(searcher, cmd.SuggestConfigs(first=number, count=1), 0.0)
    cpu_s = (process_time() - before_cpu) / ASKS
    return {
        "lag_idle_ms": round(idle["lag_s"] * 1e3, 2),
        "lag_ms": round(threaded["lag_s"] * 1e3, 2),
        "lag_cpu_ms": round(threaded["cpu_s"] * 1e3, 2),
        "ask_ms": round(threaded["ask_s"] * 1e3, 1),
        "ask_on_loop_ms": round(on_loop_s * 1e3, 1),
        "ask_cpu_ms": round(cpu_s * 1e3, 1),
    }


async def _lag(searcher: Searcher, kind: str, first: int, asks: int) -> dict[str, float]:
    """How much later than every 5 ms the loop comes round, at most, while so many asks are answered."""
    answered: asyncio.Queue[ev.ConfigsSuggested] = asyncio.Queue()
    asking = Asking(searcher, answered.put_nowait, _raise, time)
    lags: list[tuple[float, float]] = []
    ticker = asyncio.get_running_loop().create_task(_tick(lags))
    began = monotonic()
    try:
        for number in range(first, first + asks):
            found = result_of(kind, [0.5] * DIMENSIONS)
            asking.tell(
                cmd.TellSearch(
                    trial=number - 1,
                    value=found.value,
                    end="completed",
                    violations=found.violations,
                    others=found.others,
                )
            )
            asking.ask(cmd.SuggestConfigs(first=number, count=1))
            await answered.get()
        ask_s = (monotonic() - began) / max(1, asks)
        if not asks:
            await asyncio.sleep(1.0)
    finally:
        ticker.cancel()
        asking.close()
    # A search that is quick is done before the first tick.
    lag_s, cpu_s = (max((lag[index] for lag in lags), default=0.0) for index in (0, 1))
    return {"lag_s": lag_s, "cpu_s": cpu_s, "ask_s": ask_s}


def _raise(error: BaseException) -> None:
    raise error


async def _tick(lags: list[tuple[float, float]]) -> None:
    """Come round every 5 ms, with some sends and reads each time: they let go of the interpreter lock."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        while True:
            due, due_cpu = monotonic() + TICK_S, process_time() + TICK_S
            await asyncio.sleep(TICK_S)
            for _ in range(SENDS):
                ours.send(b"x" * 256)
            theirs.recv(SENDS * 256)
            lags.append((monotonic() - due, process_time() - due_cpu))


def searcher_after(trials: int, kind: str) -> Searcher:
    """A search that has been told of so many trials."""
    plain = {
        "name": "asking",
        "trainable": "benchmarks.asking:run",
        "param_space": {f"x{index}": {"uniform": [0.0, 1.0]} for index in range(DIMENSIONS)},
        "metric": "loss",
        "mode": "min",
        "num_samples": 10 * trials,
    }
    searcher = make_searcher(SweepSpec.model_validate(plain | KINDS[kind]), 1)
    random = Random(0)
    for number in range(trials):
        config = {f"x{index}": random.random() for index in range(DIMENSIONS)}
        searcher.restore(number, config)
        searcher.tell_rung(number, RUNG, sum(config.values()))
        tell_end(searcher, number, result_of(kind, list(config.values())), state="completed")
    return searcher


def result_of(kind: str, places: list[float]) -> Result:
    """What a trial there gives: the sum; more metrics are distances from other corners."""
    metrics = len(KINDS[kind].get("mode", ["min"]))
    others = tuple(sum((x - at / metrics) ** 2 for x in places) for at in range(1, metrics))
    violations = (sum(places) - DIMENSIONS / 2,) if "constraints" in KINDS[kind] else ()
    return Result(sum(places), violations, others)


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
