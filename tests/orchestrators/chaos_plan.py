"""What happens to a night: a pure function of orchestrator, seed and night, to be printed and replayed.

- **Events** are faults (processes killed, servers restarted, cluster or storage out of reach) and acts of
  people (cancel, mark, stop, clear). Each orchestrator has a menu of them: `menu_of`.
- **Drawn**: the first event of night n is the menu's n-th in an order that the seed gives, so that as many
  nights as the menu is long show all of it; what else happens, and when, is drawn by seed and night.
- **When**: as soon as a condition holds that is seen from outside (`WHENS`), never by the clock alone.
  `at_once` is right after the event before, while an outage that it began still lasts; `asking` is while a
  person is asked for approval; `ended` is once the night has.
- **Approval**: where people do nothing else, behind Airflow, a person is asked after the gate; what that
  person does is drawn of `ANSWERS`.
- An event whose condition never comes is counted as not fired.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Final, Literal

Name = Literal["loop", "prefect", "airflow"]
When = Literal["submitting", "started", "half", "gating", "asking", "training", "at_once", "ended"]

ORCHESTRATORS: Final[tuple[Name, ...]] = ("loop", "prefect", "airflow")
WHENS: Final[tuple[When, ...]] = ("submitting", "started", "half", "gating", "training")
"""The conditions, in the order in which they come true: the sweep step runs and has no job; its first trial
began; half of its trials have ended; the gate has a job; the training began."""
Answer = Literal["", "approve", "reject", "silence", "twice", "cleared", "restarted"]
ANSWERS: Final[tuple[Answer, ...]] = ("approve", "reject", "silence", "twice", "cleared", "restarted")
"""What a person does who is asked. `twice`: approves on the command line, then rejects in the form;
`cleared`: clears the task that asks, and approves when it asks again; `restarted`: approves while the
scheduler is away."""
REFUSALS: Final = ("reject", "silence")
OUTAGES: Final = ("cut_cluster", "stall_cluster", "cut_storage", "stall_storage")
"""The proxy before the cluster's Jobs API, or before the storage, refuses connections, or lets them hang."""
KILLS: Final = ("kill_step", "kill_driver", "kill_trial", "kill_head")
OWN: Final[dict[Name, tuple[str, ...]]] = {
    "loop": (),
    "prefect": ("orphan:worker", "rotate_token"),
    "airflow": ("rotate_token", "kill_worker", "drop_rows"),
}
"""What can happen to some orchestrators only. `rotate_token`: the cluster's gateway takes another token;
`orphan:worker`: the worker alone is killed, and flow processes live on; the rest by `Hands.befall`."""
LASTING: Final = (*OUTAGES, "kill_head", "rotate_token")
ENDINGS: Final = ("cancel", "mark_failed", "mark_success", "stop_job", "expire_run")
"""What people do so that a night, or its step, ends."""
_SERVERS: Final[dict[Name, tuple[str, ...]]] = {
    "loop": (),
    "prefect": ("server", "worker"),
    "airflow": ("scheduler", "triggerer", "api-server"),
}
_PEOPLE: Final[dict[Name, tuple[str, ...]]] = {
    "loop": ("cancel", "stop_job", "clear"),
    "prefect": ("cancel", "mark_failed", "stop_job", "clear"),
    "airflow": ("cancel", "mark_failed", "mark_success", "stop_job", "expire_run", "clear"),
}
CHILDREN: Final = 0.4
"""The part of Prefect's nights that another flow starts (`run_deployment`)."""
CLEARS_WHILE_RUNNING: Final[tuple[Name, ...]] = ("loop", "airflow")
"""Prefect retries only what has ended."""
TRIALS: Final = 8
_NEED_A_JOB: Final = ("kill_driver", "kill_trial", "stop_job", "expire_run", "drop_rows")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happens."""

    what: str
    """Of the menu: `kill_head`, `restart:scheduler`, `clear`."""
    when: When
    lasts_s: float = 0.0
    """How long an outage lasts, and how long a head or a server stays away."""

    def __str__(self) -> str:
        return f"{self.what} @ {self.when}" + (f" for {self.lasts_s:g} s" if self.lasts_s else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One night."""

    orchestrator: Name
    seed: int
    night: int
    level: float
    """The least x that a trial can have, and with it the least loss. A night is better than those before it
    where something is to happen to its training, and else every second time."""
    events: tuple[Event, ...]
    is_child: bool = False
    """Whether another flow starts it."""
    answer: Answer = ""
    """What a person answers who is asked for approval; empty: the gate decides."""

    def __str__(self) -> str:
        what = ", ".join(map(str, self.events)) or "nothing"
        child = " (child)" if self.is_child else ""
        asked = f"; approval: {self.answer}" if self.answer else ""
        return f"{self.orchestrator} seed {self.seed} night {self.night}{child}: {what}{asked}"


def menu_of(orchestrator: Name) -> tuple[str, ...]:
    """All that can happen to its nights."""
    servers = [f"{how}:{name}" for name in _SERVERS[orchestrator] for how in ("restart", "kill")]
    return (*KILLS, *OUTAGES, *servers, *OWN[orchestrator], *_PEOPLE[orchestrator])


def draw(orchestrator: Name, seed: int, night: int) -> Plan:
    """The plan of a night, from 0."""
    order = list(menu_of(orchestrator))
    Random(f"{orchestrator}/{seed}").shuffle(order)
    rng = Random(f"{orchestrator}/{seed}/{night}")
    level = 2 * rng.random()
    events = tuple(_events(rng, orchestrator, order[night % len(order)]))
    answer, events = _asked(orchestrator, seed, night, events)
    if answer or any(event.when == "training" for event in events):
        level = 0.0  # better than every night before: it is trained
    level = round(level - night, 3)
    return Plan(
        orchestrator=orchestrator,
        seed=seed,
        night=night,
        level=level,
        events=events,
        is_child=orchestrator == "prefect"
        and Random(f"{orchestrator}/{seed}/{night}/child").random() < CHILDREN,
        answer=answer,
    )


def _asked(
    orchestrator: Name, seed: int, night: int, events: tuple[Event, ...]
) -> tuple[Answer, tuple[Event, ...]]:
    """What a person answers, and the events, of which in every second night one comes while it is asked."""
    if orchestrator != "airflow" or any(event.what in (*ENDINGS, "clear") for event in events):
        return "", events
    rng = Random(f"{orchestrator}/{seed}/{night}/answer")
    order = list(ANSWERS)
    Random(f"{orchestrator}/{seed}/answer").shuffle(order)
    turn = night % len(order)
    possible = [
        each
        for each in (*order[turn:], *order[:turn])
        # The scheduler is restarted once at a time, and what is refused is not trained.
        if not (each == "restarted" and any(event.what.endswith(":scheduler") for event in events))
        and not (each in REFUSALS and any(event.when == "training" for event in events))
    ]
    answer, is_moved = possible[0], rng.random() < 0.5
    last = max(index for index, event in enumerate(events) if event.when != "at_once")
    event = events[last]
    can_move = event.what in (*OUTAGES, "kill_head", "rotate_token") or ":" in event.what
    if not (is_moved and can_move) or any(earlier.when == "training" for earlier in events[:last]):
        return answer, events
    return answer, (*events[:last], replace(event, when="asking"), *events[last + 1 :])


def _events(rng: Random, orchestrator: Name, first: str) -> Iterator[Event]:
    """The first, what comes with it, and what comes after it."""
    if first == "drop_rows" and rng.random() < 0.5:
        # What the clear would need to know is gone when it comes.
        yield Event(what="cancel", when=rng.choice(WHENS[1:]))
        yield Event(what="drop_rows", when="ended")
        yield Event(what="clear", when="ended")
        return
    if first not in _PEOPLE[orchestrator]:
        yield (event := _event(rng, first))
        if rng.random() < 0.5:
            # At the same time, or later: two faults that meet, or one that the recovery meets.
            second = rng.choice([each for each in menu_of(orchestrator) if each not in _PEOPLE[orchestrator]])
            later = WHENS[WHENS.index(event.when) :]
            yield _event(rng, second, rng.choice(("at_once", *later)))
        return
    when = rng.choice(WHENS[first in _NEED_A_JOB :])
    if first == "clear" and orchestrator not in CLEARS_WHILE_RUNNING:
        yield Event(what="clear", when="ended")
        return
    if rng.random() < 0.5:
        # A person acts while the cluster or the storage cannot be reached.
        yield _event(rng, rng.choice(OUTAGES), when)
        when = "at_once"
    yield Event(what=first, when=when)
    if first in ENDINGS and rng.random() < 0.5:
        is_at_once = orchestrator in CLEARS_WHILE_RUNNING and rng.random() < 0.5
        yield Event(what="clear", when="at_once" if is_at_once else "ended")


def _event(rng: Random, what: str, when: When | None = None) -> Event:
    lasts = what in LASTING or what.startswith(("kill:", "restart:", "orphan:"))
    if when is None or (when == "submitting" and what in _NEED_A_JOB):
        when = rng.choice(WHENS[what in _NEED_A_JOB :])
    return Event(what=what, when=when, lasts_s=rng.choice((2.0, 5.0, 10.0)) if lasts else 0.0)
