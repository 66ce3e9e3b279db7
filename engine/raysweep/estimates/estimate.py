"""An `Estimate` from a few plays of the rest of a sweep, within a bound of CPU time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from random import Random
from statistics import fmean, stdev
from typing import Final

from raysweep.core.seeds import derive_seed
from raysweep.core.state.frozen import fork
from raysweep.core.state.sweep import SweepState
from raysweep.estimates.model import Model, Values
from raysweep.estimates.play import Play, Played
from raysweep.estimates.samples import Past, Samples, samples_of, with_past
from raysweep.outcome.estimate import Estimate, Span
from raysweep.specs import SweepSpec

PLAYS: Final = 12
MIN_PLAYS: Final = 3
CPU_S: Final = 1.0
ENOUGH: Final = 12
"""With so many ended trials of its own, a sweep needs no earlier nights."""
_UNSEEN: Final = 0.05
"""The spread of what no sample holds, as a share of the time that is left."""
# Student's t at 90 %, by the number of plays from 2 on: few plays know little about their spread.
_T: Final = (3.08, 1.89, 1.64, 1.53, 1.48, 1.44, 1.42, 1.40, 1.38, 1.37, 1.36)
Curves = Mapping[int, Sequence[float]]
Clock = Callable[[], float]


def estimate_rest(
    state: SweepState,
    *,
    now: float,
    total: int | None,
    curves: Curves | None = None,
    past: Sequence[Past] = (),
    samples: Samples | None = None,
    cpu_s: float = CPU_S,
    plays: int = PLAYS,
    clock: Clock = time.thread_time,
) -> Estimate | None:
    """The estimated end of a sweep that is under way, with its number of trials and its cost.

    Args:
        state: Its state; it is not changed.
        now: In UTC seconds.
        total: How many trials there will be; None: not known, a limit ends it.
        curves: By trial, the metric at each of its reports (`Seen.curves`).
        past: Earlier nights of its name, the newest first; used while it has few ended trials of its own.
        samples: What `samples_of` gave for it, where that was asked before.
        cpu_s: About how much CPU time it may take, in seconds; fewer plays, and shorter ones, fit into less.
        plays: How many plays at most.
        clock: The CPU time that has been used, in seconds.

    Returns:
        The estimate; None where nothing can be said: it does not run, or no trial has reported or ended.
    """
    if state.phase != "running" or state.end.is_interrupted:
        return None
    found = with_past(samples if samples is not None else samples_of(state), past, ENOUGH)
    at = max(now - state.clock.ahead_s, state.clock.last_at)
    seen = curves or {}
    if not found.ran:
        return None

    def play(random: Random, may_go_on: Callable[[], bool]) -> Played | None:
        made = fork(state)
        model = _model(made, found, seen, random)
        played = Play(made, model, random, now=at, total=total, may_go_on=may_go_on)
        played.take_up(seen)
        return played.run()

    ends = _play_all(play, derive_seed(state.seed, len(state.trials)), cpu_s, plays, clock)
    return _estimate(ends, state, at, total, made_at=now)


def estimate_new(
    spec: SweepSpec,
    *,
    now: float,
    slots: int,
    total: int | None,
    past: Sequence[Past] = (),
    samples: Samples | None = None,
    deadline: str = "",
    cpu_s: float = CPU_S,
    plays: int = PLAYS,
    clock: Clock = time.thread_time,
) -> Estimate | None:
    """The same for a sweep that would begin now on a cluster with so many slots.

    Args:
        spec: The sweep.
        now: In UTC seconds.
        slots: How many trials run at once.
        total: How many trials there are; None: a limit ends it.
        past: Earlier nights of its name, the newest first.
        samples: What its trials are expected to do; default: what earlier nights say.
        deadline: The sweep's, in ISO 8601 with its offset; empty: none.
        cpu_s, plays, clock: As of `estimate_rest`.

    Returns:
        The estimate; None where no night says how long trials take.
    """
    found = samples if samples is not None else with_past(Samples(), past, 10 * ENOUGH)
    if not found.ran:
        return None
    seed = derive_seed(spec.seed or 0, "estimate")

    def play(random: Random, may_go_on: Callable[[], bool]) -> Played | None:
        state = SweepState.create(spec, seed)
        model = _model(state, found, {}, random)
        played = Play(state, model, random, now=now, total=total, may_go_on=may_go_on)
        played.begin_new(slots, deadline)
        return played.run()

    ends = _play_all(play, seed, cpu_s, plays, clock)
    state = SweepState.create(spec, seed)
    if deadline:
        state.clock.deadline_at = datetime.fromisoformat(deadline).timestamp()
    return _estimate(ends, state, now, total, made_at=now)


def _model(state: SweepState, samples: Samples, curves: Curves, random: Random) -> Model:
    spec = state.spec
    ends = []
    if not curves:
        scores = (trial.results.last_score for trial in list(state.trials.values())[-200:])
        ends = [score for score in scores if score is not None]
    values = Values(curves, ends, is_max=spec.mode == "max")
    stop = spec.stop
    may_go_on = state.scheduler.max_t is not None or bool(
        stop.trial or stop.trial_time_s or stop.trial_plateau or stop.trial_patience or stop.trial_if
    )
    return Model(samples, values, random, may_go_on=may_go_on)


def _play_all(
    play: Callable[[Random, Callable[[], bool]], Played | None],
    seed: int,
    cpu_s: float,
    plays: int,
    clock: Clock,
) -> list[Played]:
    begun = clock()
    ends: list[Played] = []
    for number in range(plays):
        spent = clock() - begun
        if number >= MIN_PLAYS and spent + spent / number > cpu_s:
            break
        # None of the first few may leave the others nothing.
        until = clock() + max(cpu_s - spent, 0.0) / max(1, MIN_PLAYS - number)
        played = play(Random(derive_seed(seed, number)), lambda until=until: clock() < until)  # type: ignore[misc]
        if played is not None:
            ends.append(played)
    return ends


def _estimate(
    ends: Sequence[Played], state: SweepState, at: float, total: int | None, *, made_at: float
) -> Estimate | None:
    if len(ends) < 2:
        return None
    ahead_s, deadline = state.clock.ahead_s, state.clock.deadline_at
    latest = math.inf if deadline is None else max(deadline, made_at)
    most = math.inf if total is None else float(total)
    left = _span([each.end_at - at for each in ends], _UNSEEN)
    return Estimate(
        made_at=made_at,
        end_at=_moved(left, at + ahead_s, latest),
        trials=_moved(_span([each.trials for each in ends], 0.0), 0.0, most),
        cost=_span([each.cost for each in ends], _UNSEEN) if _has_prices(state.spec) else None,
        completes=fmean(each.completed for each in ends),
        plays=len(ends),
        is_extended=any(each.is_extended for each in ends),
    )


def _moved(span: Span, by: float, most: float) -> Span:
    low, expected, high = (min(most, by + value) for value in (span.low, span.expected, span.high))
    return Span(low=low, expected=expected, high=high)


def _span(values: Sequence[float], unseen: float) -> Span:
    """The mean of these and an 80 % interval of the next one, on a logarithmic scale."""
    logs = [math.log(max(value, 1e-3)) for value in values]
    spread = math.hypot(stdev(logs), unseen) if len(set(values)) > 1 else unseen
    quantile = _T[min(len(logs), len(_T) + 1) - 2]
    far = quantile * spread * math.sqrt(1.0 + 1.0 / len(logs))
    middle = fmean(logs)
    expected = math.exp(middle) if far else values[0]
    return Span(low=expected * math.exp(-far), expected=expected, high=expected * math.exp(far))


def _has_prices(spec: SweepSpec) -> bool:
    return any(spec.stop.cost_per_hour.values())
