"""Recorded journals lead to the outcomes, and to the commands, that they led to when they were recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final, get_args

import orjson
import pytest

from raysweep.core import step
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.events import BEHAVIOUR
from raysweep.core.vocabulary.stop_reasons import StopReason
from tests.golden.replay import (
    GOLDEN,
    Replayed,
    describe_commands,
    describe_told,
    first_difference,
    make_state,
    read_expected,
    read_journal,
    replay,
)
from tests.golden.scenarios import CHAOS, SCENARIOS

NAMES: Final = sorted(path.stem for path in GOLDEN.glob("*.jsonl"))


@cache
def replayed(name: str) -> Replayed:
    expected = read_expected(name)
    return replay(expected["spec"], expected["seed"], read_journal(name))


def test_there_are_journals() -> None:
    assert set(NAMES) == set(SCENARIOS)


@pytest.mark.parametrize("name", NAMES)
def test_the_outcome_is_the_same_byte_for_byte(name: str) -> None:
    found, expected = replayed(name).outcome, read_expected(name)["outcome"]
    assert found == expected
    assert orjson.dumps(found) == orjson.dumps(expected), "the order of fields or a type of number differs"


@pytest.mark.parametrize("name", NAMES)
def test_the_core_gives_the_same_commands(name: str) -> None:
    found, expected = describe_commands(replayed(name)), read_expected(name)["commands"]
    number = first_difference(found, expected)
    if number is not None:
        event, commands = replayed(name).events[number], replayed(name).commands[number]
        text = "\n".join(map(str, commands)) or "no command"
        pytest.fail(f"other commands than recorded follow event {number}, {event}:\n{text}")
    assert found == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_search_receives_the_same_results(name: str) -> None:
    assert describe_told(replayed(name)) == read_expected(name)["told"]


@pytest.mark.parametrize("name", NAMES)
def test_each_journal_was_recorded_under_the_present_rules(name: str) -> None:
    started = [event for event in replayed(name).events if isinstance(event, ev.ControllerStarted)]
    assert {event.behaviour for event in started} == {BEHAVIOUR} == {read_expected(name)["behaviour"]}


# -- features ------------------------------------------------------------------------------------------


def of_type(replayed: Replayed, kind: type[Any]) -> list[Any]:
    return [each for each in (*replayed.events, *replayed.all_commands) if isinstance(each, kind)]


def ends(replayed: Replayed) -> Counter[str]:
    """How often attempts ended by each cause."""
    trials = replayed.state.trials.values()
    return Counter(attempt.end for trial in trials for attempt in trial.attempts)


def stops(replayed: Replayed) -> Counter[str]:
    return Counter(stop.reason for stop in of_type(replayed, cmd.StopTrial))


def told_ends(replayed: Replayed) -> dict[int, list[str]]:
    """By trial, the ends that the searcher was told."""
    told: dict[int, list[str]] = {}
    for tell in of_type(replayed, cmd.TellSearch):
        told.setdefault(tell.trial, []).append(tell.end)
    return told


def sizes(replayed: Replayed) -> set[str]:
    return {each.needs.size for each in of_type(replayed, cmd.OpenSlot)}


def started_again(replayed: Replayed, numbers: set[int], generation: int) -> set[int]:
    """Those of these trials that start under the controller of this generation."""
    found, now = set(), 0
    for event, commands in zip(replayed.events, replayed.commands, strict=True):
        now = event.generation if isinstance(event, ev.ControllerStarted) else now
        if now == generation:
            found |= {each.trial for each in commands if isinstance(each, cmd.StartTrial)}
    return found & numbers


def goes_on_from_another(replayed: Replayed) -> bool:
    """A trial starts from the checkpoint of another one."""
    starts = of_type(replayed, cmd.StartTrial)
    return any(each.checkpoint and f"/{each.trial:05d}/" not in each.checkpoint for each in starts)


def pauses_and_resumes(replayed: Replayed) -> bool:
    """Trials pause; some continue later from their checkpoints, some are stopped for good."""
    resumed = [
        trial
        for trial in replayed.state.trials.values()
        if any(attempt.end == "paused" for attempt in trial.attempts[:-1])
    ]
    stopped = [
        t for t in replayed.state.trials.values() if t.state == "stopped" and t.attempts[-1].end == "paused"
    ]
    return bool(resumed and stopped)


def decides_otherwise(replayed: Replayed, **changed: Any) -> bool:
    """With other options of its scheduler the same events would lead to other commands."""
    plain = replayed.state.spec.to_dict()
    ((kind, options),) = plain["scheduler"].items()
    other = make_state(plain | {"scheduler": {kind: options | changed}}, replayed.state.seed)
    pairs = zip(replayed.events, replayed.commands, strict=True)
    return any(tuple(step(other, event)) != commands for event, commands in pairs)


def exploits(replayed: Replayed) -> bool:
    return (
        stops(replayed)["exploit"] > 3 and ends(replayed)["exploited"] > 3 and goes_on_from_another(replayed)
    )


def exploits_in_step(replayed: Replayed) -> bool:
    donors = {a.donor for t in replayed.state.trials.values() for a in t.attempts if a.end == "paused"}
    return len(donors - {None}) > 1 and goes_on_from_another(replayed)


def promotes(replayed: Replayed) -> bool:
    return pauses_and_resumes(replayed) and stops(replayed)["scheduler"] == 0


def delays(replayed: Replayed) -> bool:
    return promotes(replayed) and decides_otherwise(replayed, delayed=False)


def tells_pauses(replayed: Replayed) -> bool:
    told = told_ends(replayed).values()
    return any(ends[0] == "paused" and ends[-1] in ("completed", "stopped") for ends in told)


def sizes_by_config(replayed: Replayed) -> bool:
    beyond = {size for each in of_type(replayed, ev.CapacityChanged) for size in each.beyond}
    return sizes(replayed) == {"", "cpu=2"} and beyond == {"cpu=2"}


def memory_by_config(replayed: Replayed) -> bool:
    kinds = {a.kind for t in replayed.state.trials.values() for a in t.attempts}
    opened = {each.needs.memory_bytes for each in of_type(replayed, cmd.OpenSlot)}
    return opened == {None, 2**31} and "oom" in kinds


def gangs(replayed: Replayed) -> bool:
    return replayed.state.spec.scaling is not None and any("num_workers" in size for size in sizes(replayed))


def races(replayed: Replayed) -> bool:
    states = Counter(config["state"] for config in replayed.outcome["configs"])
    return states["dropped"] > 1 and states["completed"] > 1


def stops_by_wilcoxon(replayed: Replayed) -> bool:
    return replayed.state.ranking.reference is not None and stops(replayed)["scheduler"] > 3


def has_front(replayed: Replayed) -> bool:
    told = [each for each in of_type(replayed, cmd.TellSearch) if each.end == "completed"]
    points = {(each.value, *each.others) for each in told}
    on_front = {p for p in points if not any(q[0] < p[0] and q[1] < p[1] for q in points)}
    return all(each.others for each in told) and 1 < len(on_front) < len(points)


def is_constrained(replayed: Replayed) -> bool:
    told = of_type(replayed, cmd.TellSearch)
    broken = [each.value for each in told if max(each.violations) > 0]
    return bool(broken) and min(broken) < replayed.outcome["best"]["score"]


def is_open_ended(replayed: Replayed) -> bool:
    asked = of_type(replayed, cmd.SuggestConfigs)
    return (
        replayed.state.spec.num_samples is None and replayed.outcome["status"] == "budget" and len(asked) > 1
    )


def extends(replayed: Replayed) -> bool:
    """By rank and by number; one trial fails on its way, and keeps its former result."""
    extended = [t for t in replayed.state.trials.values() if t.continued.max_t is not None]
    again = [started_again(replayed, {t.number for t in extended}, generation) for generation in (2, 3)]
    return len(again[0]) == 2 and again[1] == {3} and ends(replayed)["fell_back"] == 1


def retries(replayed: Replayed) -> bool:
    """All failed trials run again after a breaker has ended the sweep, then one of these by its number."""
    wanted = [set(e.retried) for e in of_type(replayed, ev.ControllerStarted)]
    again = [started_again(replayed, wanted[number - 1], number) for number in (2, 3)]
    return again == wanted[1:] and len(wanted[1]) > 1 and wanted[2] == {3}


def meets_trouble(replayed: Replayed) -> bool:
    wanted = (ev.StorageStalled, ev.ClockMoved, ev.NodeDraining, ev.SlotLost, ev.SlotFailed)
    return all(of_type(replayed, kind) for kind in wanted) and stops(replayed)["preempt"] > 0


def is_silent(replayed: Replayed) -> bool:
    return stops(replayed)["hung"] > 1 and len(of_type(replayed, cmd.ExcludeNode)) == 1


def is_cancelled_and_resumed(replayed: Replayed) -> bool:
    requested = of_type(replayed, ev.CancelRequested)
    return len(requested) == 1 and ends(replayed)["cut"] > 0 and replayed.outcome["status"] == "completed"


def resizes(replayed: Replayed) -> bool:
    return sizes(replayed) > {""} and ends(replayed)["exploited"] > 0 and not goes_on_from_another(replayed)


def reaches_the_target(replayed: Replayed) -> bool:
    return replayed.outcome["status"] == "target" and ends(replayed)["cut"] > 0


def keeps_the_best(replayed: Replayed) -> bool:
    """Over three requests with more samples and other code: a retry, and two trials that are extended."""
    started = of_type(replayed, ev.ControllerStarted)
    extended = [trial for trial in replayed.state.trials.values() if trial.continued.max_t is not None]
    stored = [trial for trial in replayed.state.trials.values() if trial.checkpoints]
    is_other = [each.code for each in started] == ["py:1", "py:2", "py:2"] and len(
        of_type(replayed, ev.SpecChanged)
    ) == 1
    return (
        is_other and {trial.number for trial in extended} == {t.number for t in stored} and len(stored) == 2
    )


def uses_patience(replayed: Replayed) -> bool:
    return stops(replayed)["limit"] > 3 and replayed.outcome["status"] == "plateau"


FEATURES: Final[dict[str, Callable[[Replayed], bool]]] = {
    "asha-delayed": delays,
    "asha-promotion": promotes,
    "bohb": lambda replayed: len(of_type(replayed, cmd.TellRung)) > 10,
    "cancelled": is_cancelled_and_resumed,
    "constraints": is_constrained,
    "extend": extends,
    "gang": gangs,
    "hyperband": lambda replayed: pauses_and_resumes(replayed) and stops(replayed)["scheduler"] > 0,
    "median": lambda replayed: stops(replayed)["scheduler"] > 3,
    "memory": memory_by_config,
    "open-end": is_open_ended,
    "pasha": pauses_and_resumes,
    "patience": uses_patience,
    "pbt": exploits,
    "pbt-synch": exploits_in_step,
    "repeats-race": races,
    "resizing": resizes,
    "retention": keeps_the_best,
    "retry": retries,
    "several-metrics": has_front,
    "silent": is_silent,
    "sizes": sizes_by_config,
    "target": reaches_the_target,
    "told-pauses": tells_pauses,
    "trouble": meets_trouble,
    "wilcoxon": stops_by_wilcoxon,
}
"""By journal, whether it shows the feature for which it was recorded."""


def test_each_recorded_journal_has_a_feature() -> None:
    assert {*FEATURES, *(f"chaos-{seed}" for seed in CHAOS)} == set(NAMES)


@pytest.mark.parametrize("name", FEATURES)
def test_the_feature_is_exercised(name: str) -> None:
    assert FEATURES[name](replayed(name))


def _kinds_seen() -> Iterator[type[Any] | str]:
    for name in NAMES:
        yield from {type(each) for each in (*replayed(name).events, *replayed(name).all_commands)}
        yield from stops(replayed(name))


def test_the_journals_have_nearly_all_events_commands_and_reasons_to_stop() -> None:
    known = {*get_args(ev.Event), *get_args(cmd.Command), *get_args(StopReason)}
    # Ray and workers report these, and the simulator has neither; the two reasons are rare.
    rest = {
        ev.ShareChanged,
        ev.DemandStuck,
        ev.CheckpointDamaged,
        ev.CheckpointFailed,
        ev.TrialNoted,
        "resume",
        "damage",
    }
    assert known - set(_kinds_seen()) == rest
