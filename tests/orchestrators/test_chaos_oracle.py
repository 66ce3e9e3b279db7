"""The oracle of the stress run catches each kind of lie, and no honest night; plans are pure and show all."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.orchestrators.chaos_oracle import (
    RULES,
    Act,
    ApprovalSeen,
    ChampionSeen,
    JobSeen,
    Line,
    NightSeen,
    RunSeen,
    StepSeen,
    lies,
    wanted,
)
from tests.orchestrators.chaos_plan import (
    ANSWERS,
    ENDINGS,
    LASTING,
    ORCHESTRATORS,
    WHENS,
    Answer,
    Name,
    draw,
    menu_of,
)
from tests.orchestrators.nights import State, Step

XS = (0.3, 0.1, 0.2)


def job(number: int = 1, started_at: float = 0.0, ended_at: float | None = 10.0, **more: Any) -> JobSeen:
    return JobSeen(
        number=number, started_at=started_at, ended_at=ended_at, status=more.get("status", "SUCCEEDED")
    )


def run(step: Step, **changes: Any) -> RunSeen:
    fields: dict[str, Any] = {"status": "completed", "ended_at": 10.0, "best_x": 0.1, "jobs": (job(),)}
    if step == "sweep":
        fields |= {"xs": XS, "returned": tuple((number, 2.0 + number) for number in range(3))}
    return RunSeen(step=step, run_id=f"{step}-1", **(fields | changes))


def step(state: State = "success", **given: Any) -> StepSeen:
    return StepSeen(state=state, handed_on=given or None)


def line(word: Any, number: int, at: float, pid: int = 7) -> Line:
    return Line(word=word, run_id="sweep-1", number=number, pid=pid, at=at)


OLD = ChampionSeen(sweep_id="sweep-0", x=0.5, nights=(("sweep-0", True),))
NEW = ChampionSeen(sweep_id="sweep-1", x=0.1, nights=(("sweep-0", True), ("sweep-1", True)))
GOOD = NightSeen(
    steps={
        "sweep": step(status="completed", x=0.1),
        "gate": step(),
        "train": step(status="completed", x=0.1),
    },
    runs=(run("sweep"), run("gate"), run("train")),
    trials=3,
    before=OLD,
    after=NEW,
    lines=tuple(
        line(word, number, number + at) for number in range(3) for word, at in (("start", 0.5), ("end", 1.5))
    ),
    trained=(0.1,),
    quiet_at=10.0,
)
CANCELLED = replace(
    GOOD,
    steps={"sweep": step("failed"), "gate": step("waiting"), "train": step("skipped")},
    runs=(run("sweep", status="cancelled", ended_at=8.0),),
    acts=(Act(what="cancel", step="sweep", at=5.0, stopped_at=10.0),),
    after=OLD,
    trained=(),
)
REFUSED = replace(
    GOOD,
    steps={**GOOD.steps, "train": step("skipped")},
    runs=(run("sweep"), run("gate")),
    after=replace(OLD, nights=(*OLD.nights, ("sweep-1", False))),
    trained=(),
)
ASKED = replace(
    GOOD,
    approval=ApprovalSeen(
        answer="approve",
        task=step(promoted=True),
        decisions=(("sweep-0", False, "ann"), ("sweep-1", True, "ann")),
        registered=("sweep-0", "sweep-1"),
    ),
)
REJECTED = replace(
    REFUSED,
    approval=ApprovalSeen(
        answer="reject",
        task=step(promoted=False),
        decisions=(("sweep-1", False, "ann"),),
        registered=("sweep-0",),
    ),
)
RESUMED = replace(
    GOOD,
    acts=(*CANCELLED.acts, Act(what="clear", step="sweep", at=7.0)),
    runs=(run("sweep", jobs=(job(1, 0, 6, status="FAILED"), job(2, 8, 12))), run("gate"), run("train")),
)
LOST = replace(
    GOOD, runs=(run("sweep", jobs=(job(1, 0, 3, status="GONE"), job(2, 4, 9))), run("gate"), run("train"))
)
MARKED = replace(
    CANCELLED,
    steps={"sweep": step(), "gate": step("failed"), "train": step("skipped")},
    acts=(Act(what="mark_success", step="sweep", at=5.0),),
)
FIRST = replace(
    GOOD, before=ChampionSeen(), after=ChampionSeen(sweep_id="sweep-1", x=0.1, nights=(("sweep-1", True),))
)
TOO_LATE = replace(
    GOOD,
    acts=(Act(what="mark_failed", step="train", at=10.3), Act(what="clear", step="train", at=12.0)),
    clear_resumes=False,
)
"""The training had completed as a person ended it: a retry has its outcome."""
ALMOST = replace(GOOD, acts=(Act(what="mark_failed", step="train", at=8.0),))
"""The training completed before it could see that."""


@pytest.mark.parametrize(
    "night", [GOOD, CANCELLED, REFUSED, ASKED, REJECTED, RESUMED, LOST, MARKED, FIRST, TOO_LATE, ALMOST]
)
def test_an_honest_night_is_believed(night: NightSeen) -> None:
    assert lies(night) == []


def with_steps(night: NightSeen, **changes: StepSeen) -> NightSeen:
    return replace(night, steps={**night.steps, **changes})  # type: ignore[arg-type]


def with_run(night: NightSeen, which: Step, **changes: Any) -> NightSeen:
    runs = tuple(replace(each, **changes) if each.step == which else each for each in night.runs)
    return replace(night, runs=runs)


LIES: dict[str, tuple[str, NightSeen]] = {
    "a success without an outcome": ("success_has_an_outcome", with_run(GOOD, "sweep", status=None)),
    "a success of which nothing is stored": (
        "success_has_an_outcome",
        replace(GOOD, runs=(run("sweep"), run("gate"))),
    ),
    "a success whose sweep was cancelled": (
        "success_has_an_outcome",
        with_run(GOOD, "sweep", status="cancelled"),
    ),
    "a gate that succeeded without its sweep": (
        "success_has_an_outcome",
        with_run(GOOD, "gate", status="failed"),
    ),
    "a task that never ends": ("every_step_ends", with_steps(GOOD, train=step("running"))),
    "a cancelled night whose task still runs": (
        "every_step_ends",
        with_steps(CANCELLED, gate=step("running")),
    ),
    "a night that a fault failed for good": (
        "it_ends_as_people_want",
        with_steps(GOOD, sweep=step("failed")),
    ),
    "a training that a fault failed": ("it_ends_as_people_want", with_steps(GOOD, train=step("failed"))),
    "a night that a fault skipped": ("it_ends_as_people_want", with_steps(GOOD, gate=step("skipped"))),
    "a night that succeeds though it was cancelled": (
        "it_ends_as_people_want",
        replace(GOOD, acts=CANCELLED.acts),
    ),
    "a clear that is lost": ("it_ends_as_people_want", replace(CANCELLED, acts=RESUMED.acts)),
    "a retry that resumes what was ended before it completed": (
        "it_ends_as_people_want",
        with_run(TOO_LATE, "train", ended_at=11.0),
    ),
    "a mark that is lost": ("it_ends_as_people_want", with_steps(MARKED, sweep=step("failed"))),
    "a cleared task that answers with the old best": (
        "what_is_handed_on_is_what_is_stored",
        with_steps(GOOD, sweep=step(status="completed", x=0.2)),
    ),
    "a cleared task that answers with the old status": (
        "what_is_handed_on_is_what_is_stored",
        with_steps(GOOD, sweep=step(status="deadline", x=0.1)),
    ),
    "a training that hands on another config": (
        "what_is_handed_on_is_what_is_stored",
        with_steps(GOOD, train=step(status="completed", x=0.2)),
    ),
    "a trial that is missing": ("all_trials_ran", with_run(GOOD, "sweep", xs=(0.3, 0.1))),
    "a best that is not the best": ("all_trials_ran", with_run(GOOD, "sweep", xs=(0.05, 0.1, 0.2))),
    "two jobs at once": ("one_job_at_a_time", with_run(GOOD, "sweep", jobs=(job(1, 0, 9), job(2, 4, 10)))),
    "a job beside one that does not end": (
        "one_job_at_a_time",
        with_run(GOOD, "sweep", jobs=(job(1, 0, None, status="RUNNING"), job(2, 4, 10))),
    ),
    "two jobs of one number": (
        "one_job_at_a_time",
        with_run(GOOD, "sweep", jobs=(job(1, 0, 3), job(1, 4, 9))),
    ),
    "a cancelled task with a running job": (
        "no_job_is_left",
        with_run(CANCELLED, "sweep", jobs=(job(1, 0, None, status="RUNNING"),)),
    ),
    "a job that waits after the night": (
        "no_job_is_left",
        with_run(GOOD, "train", jobs=(job(1, 0, None, status="PENDING"),)),
    ),
    "a process that is orphaned": ("no_job_is_left", replace(GOOD, left=("ray::TrialWorker",))),
    "a job that nobody knows": ("no_job_is_left", replace(GOOD, quiet_at=None)),
    "a job that only its lease ends": (
        "who_is_told_to_end_ends",
        replace(CANCELLED, acts=(replace(CANCELLED.acts[0], stopped_at=70.0),)),
    ),
    "a job that is ended late, and then cleared": (
        "who_is_told_to_end_ends",
        replace(RESUMED, acts=(replace(RESUMED.acts[0], stopped_at=70.0), RESUMED.acts[1])),
    ),
    "a trial that ends twice": (
        "no_trial_runs_twice",
        with_run(GOOD, "sweep", returned=((0, 2.0), (1, 3.0), (2, 4.0), (1, 5.0))),
    ),
    "a trial that starts after its end": (
        "no_trial_runs_twice",
        replace(GOOD, lines=(*GOOD.lines, line("start", 0, 9.0, pid=8))),
    ),
    "a trial in two processes at once": (
        "no_trial_runs_twice",
        replace(GOOD, lines=tuple(line("step", 0, 0.5 + n / 10, pid=n % 2) for n in range(4))),
    ),
    "a champion that is not the outcome's best": (
        "the_champion_is_the_best_that_was_promoted",
        replace(GOOD, after=replace(NEW, x=0.2)),
    ),
    "a champion of a night that failed": (
        "the_champion_is_the_best_that_was_promoted",
        replace(CANCELLED, after=NEW),
    ),
    "a champion that nobody promoted": (
        "the_champion_is_the_best_that_was_promoted",
        replace(REFUSED, after=replace(REFUSED.after, sweep_id="sweep-1", x=0.1)),
    ),
    "a promotion that is not written": (
        "the_champion_is_the_best_that_was_promoted",
        replace(GOOD, after=replace(OLD, nights=NEW.nights)),
    ),
    "a champion that is worse": (
        "the_champion_is_the_best_that_was_promoted",
        replace(GOOD, before=replace(OLD, x=0.05)),
    ),
    "a night that is in the history twice": (
        "the_champion_is_the_best_that_was_promoted",
        replace(GOOD, after=replace(NEW, nights=(*NEW.nights, ("sweep-1", False)))),
    ),
    "a training of what was refused": (
        "what_is_promoted_is_trained",
        replace(GOOD, after=REFUSED.after),
    ),
    "a training of another config": ("what_is_promoted_is_trained", replace(GOOD, trained=(0.1, 0.2))),
    "a stored training of another config": (
        "what_is_promoted_is_trained",
        with_run(GOOD, "train", best_x=0.2),
    ),
    "a training that is left out": (
        "what_is_promoted_is_trained",
        replace(REFUSED, after=NEW),
    ),
    "a gate that left no trace": (
        "what_is_promoted_is_trained",
        replace(REFUSED, after=OLD),
    ),
    "a decision that another one follows": (
        "what_a_person_decides_holds",
        replace(REJECTED, steps=GOOD.steps),
    ),
    "a damaged journal": (
        "nothing_is_damaged",
        with_run(GOOD, "gate", damage=("journal/1 has lost its end",)),
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_caught(name: str) -> None:
    rule, night = LIES[name]
    assert rule in {lie.split(":")[0] for lie in lies(night)}


def asked(night: NightSeen, **changes: Any) -> NightSeen:
    assert night.approval is not None
    return replace(night, approval=replace(night.approval, **changes))


@pytest.mark.parametrize(
    ("night", "said"),
    [
        (asked(ASKED, decisions=()), "has 0 decisions"),
        (asked(ASKED, decisions=(("sweep-1", True, "ann"), ("sweep-1", False, "bob"))), "has 2 decisions"),
        (asked(ASKED, answer="reject"), "answer was reject, and ann decided True"),
        (asked(ASKED, decisions=(("sweep-1", True, "silence"),)), "answer was approve, and silence decided"),
        (asked(ASKED, task=step("failed", promoted=True)), "the task is failed"),
        (asked(ASKED, task=step(promoted=False)), "handed on False, the decision is True"),
        (asked(ASKED, registered=("sweep-0",)), "the registry has ['sweep-0']"),
        (asked(ASKED, registered=("sweep-1", "sweep-0", "sweep-1")), "the registry has"),
        (asked(ASKED, registered=("sweep-1", "sweep-0")), "the registry has"),
        (asked(REJECTED, registered=("sweep-1",)), "the decision of ['sweep-1'] is False"),
        (asked(ASKED, flaws=("000001-ab is missing",)), "000001-ab is missing"),
        (replace(REJECTED, after=NEW), "the champion is of sweep-1, the decision is False"),
        (replace(REJECTED, steps=GOOD.steps), "train is success, the decision is False"),
    ],
)
def test_each_place_that_knows_of_a_decision_is_compared(night: NightSeen, said: str) -> None:
    assert any(said in lie for lie in lies(night)), lies(night)


def test_every_rule_catches_something() -> None:
    assert {rule for rule, _ in LIES.values()} == {rule.__name__.strip("_") for rule in RULES}


@pytest.mark.parametrize(
    ("acts", "clear_resumes", "expected"),
    [
        ((), True, "success"),
        (("cancel",), True, "ended"),
        (("cancel", "clear"), True, "success"),
        (("cancel", "clear"), False, "ended"),
        (("clear",), False, "success"),
        (("clear", "mark_failed"), True, "ended"),
        (("mark_success",), True, "marked"),
        (("mark_success", "clear"), True, "success"),
        (("stop_job",), False, "ended"),
    ],
)
def test_what_people_did_says_how_it_ends(acts: tuple[str, ...], clear_resumes: bool, expected: str) -> None:
    done = tuple(Act(what=what, step="sweep", at=float(at)) for at, what in enumerate(acts))
    assert wanted(replace(GOOD, acts=done, clear_resumes=clear_resumes)) == expected


# --- the plans


@pytest.mark.parametrize("orchestrator", ORCHESTRATORS)
def test_a_plan_is_the_same_whenever_it_is_drawn(orchestrator: Name) -> None:
    nights = [draw(orchestrator, 7, night) for night in range(30)]
    assert nights[::-1] == [draw(orchestrator, 7, night) for night in reversed(range(30))]
    assert nights != [draw(orchestrator, 8, night) for night in range(30)]


@pytest.mark.parametrize("orchestrator", ORCHESTRATORS)
@pytest.mark.parametrize("seed", range(5))
def test_a_month_shows_the_whole_menu(orchestrator: Name, seed: int) -> None:
    drawn = Counter(event.what for night in range(30) for event in draw(orchestrator, seed, night).events)
    assert set(drawn) == set(menu_of(orchestrator))


@pytest.mark.parametrize("orchestrator", ORCHESTRATORS)
def test_events_come_in_an_order_in_which_they_can_happen(orchestrator: Name) -> None:
    for night in range(300):
        events = draw(orchestrator, 3, night).events
        assert 1 <= len(events) <= 3
        assert events[0].when != "at_once"
        order = [WHENS.index(event.when) for event in events if event.when in WHENS]
        assert order == sorted(order)
        assert sum(event.what in ENDINGS for event in events) <= 1
        assert all((event.lasts_s > 0) == (":" in event.what or event.what in LASTING) for event in events)
        if orchestrator == "prefect":
            assert all(event.when == "ended" for event in events if event.what == "clear")


@pytest.mark.parametrize("orchestrator", ORCHESTRATORS)
def test_a_night_to_whose_training_something_happens_is_trained(orchestrator: Name) -> None:
    least = 1.0
    for night in range(100):
        plan = draw(orchestrator, 3, night)
        if any(event.when == "training" for event in plan.events):
            # The worst that it can find is as good as the best that an earlier night could.
            assert plan.level + 1.0 <= least
        least = min(least, plan.level)


@pytest.mark.parametrize("seed", range(3))
def test_a_person_answers_in_each_way_where_people_do_nothing_else(seed: int) -> None:
    plans = [draw("airflow", seed, night) for night in range(60)]
    assert {plan.answer for plan in plans} == {"", *ANSWERS}
    for plan in plans:
        acts = any(event.what in (*ENDINGS, "clear") for event in plan.events)
        assert bool(plan.answer) is not acts
        assert plan.answer or all(event.when != "asking" for event in plan.events)
    assert any(event.when == "asking" for plan in plans for event in plan.events)
    others: set[Answer] = {
        draw(name, seed, night).answer for name in ("loop", "prefect") for night in range(30)
    }
    assert others == {""}
