"""What each tracker must pass: what it stored equals the journal.

After two kills at any point, with a sink that is down half of the time, and with events that come again.
"""

from __future__ import annotations

import random
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from raysweep.delivery import process, sink
from raysweep.delivery.feed import Item
from raysweep.hooks.events import Report, SweepEnd, TrialEnd
from raysweep.hooks.numbers import numbers_of
from raysweep.hooks.spec import CallbackSpec
from tests.sampling import sampled
from tests.unit.delivery.journals import GoldenSweep

Point = tuple[str, int, str, str]
"""Trial, iteration, metric, and the value as `shown`."""


def shown(value: float) -> str:
    """A value as a single-precision number: TensorBoard keeps no more."""
    return f"{struct.unpack('f', struct.pack('f', value))[0]:.6g}"


@dataclass
class Stored:
    """What a tracker has: points, and the last state of each trial that it knows."""

    points: list[Point]
    states: dict[str, str] = field(default_factory=dict)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)


def points_of(items: list[Item]) -> list[Point]:
    """The points of a sweep's reports that count."""
    return sorted(
        (event.trial_id, event.iteration, name, shown(value))
        for event in (item.event for item in items)
        if isinstance(event, Report) and event.counts
        for name, value in numbers_of(event.metrics).items()
    )


def run_life(
    sweep: GoldenSweep, callback: CallbackSpec, *, events: int | None = None
) -> list[sink.SinkReport]:
    """One process's life: all is delivered; or, with `events`, it dies after so many, without a note."""
    delivery = process.Delivery(sweep.folder, (callback,))
    given = 0
    with pytest.MonkeyPatch.context() as patch:
        give, note = sink.Sink._give, sink.Sink._note

        def give_or_die(self: sink.Sink, item: Item) -> None:
            nonlocal given
            if events is not None and given >= events:
                raise sink._Leave
            give(self, item)
            given += 1

        def note_if_alive(self: sink.Sink, *, is_due: bool) -> None:
            if events is None or given < events:
                note(self, is_due=is_due)

        patch.setattr(sink.Sink, "_give", give_or_die)
        patch.setattr(sink.Sink, "_note", note_if_alive)
        delivery.hurry()
        reading = threading.Thread(target=delivery.run, daemon=True)
        reading.start()
        reading.join(30)
        for each in delivery.sinks:
            each._thread.join(60)
        delivery.leave()
    return delivery.reports()


class TrackerContract:
    """Subclass it, and give `callback` and `stored`."""

    names = ("pbt", "retry")

    def callback(self) -> CallbackSpec:
        """The tracker."""
        raise NotImplementedError

    def stored(self) -> Stored:
        """What it has stored."""
        raise NotImplementedError

    def break_half(self) -> None:
        """From now on, half of all requests fail."""

    @pytest.fixture(autouse=True)
    def _fast(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setattr(sink, "PAUSE_S", 0.001)
        monkeypatch.setattr(sink, "BATCH", 23)
        monkeypatch.setattr(sink, "CURSOR_S", 0.0)
        return None

    def check(self, sweep: GoldenSweep) -> None:
        """That what is stored is what the journal says."""
        items, stored = sweep.items(), self.stored()
        assert sorted(stored.points) == points_of(items)
        ends = {e.trial_id: e for e in (item.event for item in items) if isinstance(e, TrialEnd)}
        if stored.states:
            assert stored.states == {trial: end.state for trial, end in ends.items()}
        assert isinstance(items[-1].event, SweepEnd)

    @pytest.mark.parametrize("name", ["pbt", "retry", "trouble"])
    def test_it_stores_what_the_journal_says(self, name: str, tmp_path: Path) -> None:
        sweep = GoldenSweep(name, tmp_path / "store")
        sweep.write()
        (report,) = run_life(sweep, self.callback())
        assert (report.left, report.skipped) == (0, 0)
        self.check(sweep)

    @pytest.mark.parametrize("seed", sampled(range(4), lambda seed: seed < 2))
    def test_two_kills_at_any_point_neither_lose_nor_double_anything(self, seed: int, tmp_path: Path) -> None:
        rng = random.Random(seed)
        sweep = GoldenSweep(["pbt", "retry"][seed % 2], tmp_path / "store")
        sweep.write()
        total = len(sweep.items())
        for _ in range(2):
            run_life(sweep, self.callback(), events=rng.randrange(total // 2))
        (report,) = run_life(sweep, self.callback())
        assert (report.left, report.skipped) == (0, 0)
        self.check(sweep)

    @pytest.mark.parametrize("seed", range(2))
    def test_down_half_of_the_time_and_killed_it_still_stores_everything(
        self, seed: int, tmp_path: Path
    ) -> None:
        rng = random.Random(seed)
        sweep = GoldenSweep("retry", tmp_path / "store")
        sweep.write()
        self.break_half()
        total = len(sweep.items())
        for _ in range(2):
            run_life(sweep, self.callback(), events=rng.randrange(total // 2))
        (report,) = run_life(sweep, self.callback())
        assert (report.left, report.skipped) == (0, 0)
        self.check(sweep)


def options(kind: str, **fields: Any) -> CallbackSpec:
    """A tracker with options."""
    return CallbackSpec.of({kind: fields})
