"""What a report costs: seconds and bytes by the number of trials, and how quickly a browser shows it.

    python -m benchmarks.report

Of 1,000 trials of 9 parameters with 27 reports each, and of 100,000 with 3 each. The events are those of a
sweep on 8 slots, stored as a controller stores them. Seconds are of the whole call, the journal included, by
the clock and of the processor. Where Playwright and a Chromium are there, the page is opened, and a range is
dragged along an axis.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from time import perf_counter, process_time
from typing import Any

from raysweep.core import SweepState, encode, make_outcome, step
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.pages import write_report
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.specs import SweepSpec
from raysweep.storage.journal.writer import JournalWriter
from raysweep.storage.objects.opening import open_store

SLOTS = 8
SIZES = ((1_000, 27), (100_000, 3))
"""Trials, and reports of each."""
PARAMS = 9
MOVES = 60
CHROMIUM = "/usr/bin/chromium"


def run(
    rounds: int = 1, sizes: tuple[tuple[int, int], ...] = SIZES, *, has_browser: bool = True
) -> dict[str, Any]:
    """The figures by number of trials; seconds are those of the fastest round."""
    return {
        str(trials): measure(trials, reports, rounds, has_browser=has_browser) for trials, reports in sizes
    }


def measure(trials: int, reports: int, rounds: int, *, has_browser: bool) -> dict[str, Any]:
    """One size."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        folder = store(root / "store", trials, reports)
        seconds, used = [], []
        for _ in range(rounds):
            before, used_before = perf_counter(), process_time()
            path = write_report(folder.uri, root / "report.html")
            seconds.append(perf_counter() - before)
            used.append(process_time() - used_before)
        found: dict[str, Any] = {
            "report_s": round(min(seconds), 3),
            "processor_s": round(min(used), 3),
            "report_bytes": path.stat().st_size,
        }
        if has_browser and importlib.util.find_spec("playwright") and shutil.which(CHROMIUM):
            found |= look(path)
        return found


def store(root: Path, trials: int, reports: int) -> SweepFolder:
    """The folder of a sweep that has ended."""
    folder, state = run_events(root, trials, reports)
    finish(folder, state)
    return folder


def finish(folder: SweepFolder, state: SweepState) -> None:
    """Make the outcome and store it."""
    outcome = make_outcome(state, sweep_id=folder.sweep_id, key="k", uri=folder.uri, version="0")
    folder.write_outcome_if_absent(outcome)


def run_events(root: Path, trials: int, reports: int) -> tuple[SweepFolder, SweepState]:
    """The folder and the state of a sweep whose journal has come to its end; it has no outcome yet."""
    spec = _spec(trials)
    folder = SweepFolder(open_store(root), f"scale-{trials}")
    folder.write_spec_if_absent(SweepRecord(digest=spec.digest(), key="k", seed=1, spec=spec.to_dict()))
    state = SweepState.create(spec, 1)
    journal = folder.journal()
    events = _events(state, trials, reports)
    first = next(events)
    claim = journal.claim(lambda generation: encode(first))
    problems: list[Exception] = []
    with JournalWriter(
        journal.backend, claim.generation, claim.next_number, problems.append, writer=claim.writer
    ) as writer:
        for event in events:
            writer.write(encode(event))
    assert not problems
    return folder, state


def look(path: Path) -> dict[str, Any]:
    """In a browser: milliseconds to the first paint and to the whole page, and of each frame of a drag."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--headless", "--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(path.as_uri())
        page.wait_for_selector("main[data-view]", timeout=60_000)
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null")
        shown = page.evaluate("performance.timing.loadEventEnd - performance.timing.navigationStart")
        canvas = page.locator(".parallel canvas")
        canvas.scroll_into_view_if_needed()
        page.wait_for_selector(".parallel[data-drawn=yes]")
        box = canvas.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 46, box["y"] + 40)
        page.mouse.down()
        for move in range(MOVES):
            page.mouse.move(box["x"] + 46, box["y"] + 42 + move * 4)
            page.wait_for_timeout(20)
        page.mouse.up()
        frames = sorted(page.evaluate("window.raysweep.frames || []"))
        browser.close()
    return {
        "first_paint_ms": round(paint) if paint is not None else None,
        "loaded_ms": round(shown),
        "brush_frame_ms": {
            "median": round(frames[len(frames) // 2], 1),
            "most": round(frames[-1], 1),
            "frames": len(frames),
        }
        if frames
        else None,
    }


def _spec(trials: int) -> SweepSpec:
    space: dict[str, Any] = {f"p{number}": {"uniform": [0, 1]} for number in range(PARAMS - 2)}
    space |= {"rate": {"loguniform": [1e-5, 1e-1]}, "kind": {"choice": ["a", "b", "c"]}}
    plain = {
        "name": "scale",
        "trainable": "benchmarks.report:run",
        "param_space": space,
        "metric": "loss",
        "mode": "min",
        "search": "random",
        "num_samples": trials,
        "scheduler": "fifo",
    }
    return SweepSpec.model_validate(plain)


def _events(state: SweepState, trials: int, reports: int) -> Iterator[ev.Event]:
    """The sweep's events, each applied to the state: every command is answered at once."""
    rng = Random(1)
    at = 1_700_000_000.0
    todo: list[ev.Event] = [
        ev.ControllerStarted(at=at, generation=1),
        ev.CapacityChanged(at=at, slots=SLOTS),
    ]
    place = 0
    while place < len(todo):
        event = todo[place]
        place += 1
        if place > 10_000:
            del todo[:place]
            place = 0
        yield event
        for command in step(state, event):
            match command:
                case cmd.SuggestConfigs():
                    end = min(trials, command.first + command.count)
                    configs = tuple(_config(rng) for _ in range(command.first, end))
                    todo.append(
                        ev.ConfigsSuggested(
                            at=at, first=command.first, configs=configs, is_exhausted=end == trials
                        )
                    )
                case cmd.OpenSlot():
                    todo.append(ev.SlotOpened(at=at, slot=command.slot, node=f"node{command.slot % 2}"))
                case cmd.StartTrial():
                    at += 1.0 / SLOTS
                    who: dict[str, int] = {"trial": command.trial, "attempt": command.attempt}
                    config = state.trials[command.trial].config
                    rows: tuple[list[Any], ...] = tuple(
                        [float(config["p0"]) + 1 / (n + 1) + rng.gauss(0, 0.01)] for n in range(reports)
                    )
                    todo += [
                        ev.TrialStarted(at=at, **who),
                        ev.TrialReported(at=at + 0.9, first=0, keys=("loss",), rows=rows, **who),
                        ev.TrialReturned(at=at + 1.0, **who),
                    ]
                case cmd.EndSweep():
                    todo.append(ev.SweepEnded(at=at + 1.0))
                case _:
                    pass  # stops and recalls: the trial's end is under way already


def _config(rng: Random) -> dict[str, Any]:
    config: dict[str, Any] = {f"p{number}": rng.random() for number in range(PARAMS - 2)}
    return config | {"rate": 10 ** rng.uniform(-5, -1), "kind": rng.choice("abc")}


if __name__ == "__main__":
    print(json.dumps(run(rounds=3), indent=2))
