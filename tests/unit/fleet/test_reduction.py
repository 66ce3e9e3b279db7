"""Reports of a gang's ranks as one: what is said, when, and what is wrong with reports that do not match."""

from __future__ import annotations

from itertools import permutations
from random import Random
from typing import Any

import pytest

from raysweep import messages as msg
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import classify, is_retried
from raysweep.fleet import gang, reduction
from raysweep.fleet.policy import GANG_GRACE_S, FleetPolicy
from raysweep.fleet.reduction import GangReports, Rule
from raysweep.specs import FailurePolicy, SweepSpec
from tests.unit.fleet.fleet import RAISED, Driven, began, failed, returned, stopped

MEAN = Rule(default="mean", metric="loss")
WHO = {"trial": 7, "attempt": 1}


def rows(
    first: int, *values: Any, keys: tuple[str, ...] = ("loss",), waits: bool = False
) -> msg.TrialReported:
    made = [list(value) if isinstance(value, tuple) else [value] for value in values]
    return msg.TrialReported(**WHO, first=first, keys=keys, rows=made, is_waiting=waits)


def saved(number: int, report: int, score: float | None = 99.0) -> msg.CheckpointCommitted:
    return msg.CheckpointCommitted(
        **WHO, number=number, report=report, uri=f"u{number}", size_bytes=1, score=score
    )


def said(driven: Driven) -> list[tuple[int, tuple[str, ...], list[Any]]]:
    """The reports of the last events."""
    reported = [event for event in driven.events if isinstance(event, ev.TrialReported)]
    return [(each.first, each.keys, [*each.rows]) for each in reported]


def at_work(rule: Rule = MEAN, members: int = 2) -> Driven:
    driven = Driven(can_spare=False, world_size=members, reduction=rule).open(0)
    for rank in range(members):
        driven.up(rank)
    driven.hand(0, 7)
    for rank in range(members):
        driven.say(rank, began(7, 1))
    return driven


def one(rule: Rule, *reports: tuple[tuple[str, ...], tuple[Any, ...]]) -> Any:
    """What one report of each rank becomes: its metrics, or what is wrong with them."""
    found = GangReports(rule, len(reports))
    out = [
        message
        for rank, (keys, values) in enumerate(reports)
        for message in found.take(rank, rows(0, values, keys=keys))
    ]
    if found.problem:
        assert not out
        return found.problem
    ((made,),) = (message.rows for message in out if isinstance(message, msg.TrialReported))
    return dict(zip(out[0].keys, made, strict=True))  # type: ignore[union-attr]


def of(how: Any, *values: Any) -> Any:
    return one(Rule(by_name=(("loss", how),)), *((("loss",), (value,)) for value in values))


# -- what it becomes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "values", "result"),
    [
        ("mean", (1.0, 2.0, 6.0), 3.0),
        ("mean", (3, 3), 3),
        ("mean", (1, 2), 1.5),
        ("mean", (0.1, 0.1, 0.1), 0.1),
        ("mean", (2.0**1023, 1.5 * 2.0**1023), 1.25 * 2.0**1023),
        ("sum", (1e16, 1.0, -1e16), 1.0),
        ("sum", (2**62, 2**62), 2**63),
        ("sum", (2**64 - 1, 1), 2.0**64),
        ("sum", (1.7e308, 1.6e308), "Infinity"),
        ("max", (1, 2.5, -3), 2.5),
        ("min", (1, 2.5, -3), -3),
        ("mean", (1.0, "NaN"), "NaN"),
        ("max", ("NaN", 1.0), "NaN"),
        ("min", (1.0, "-Infinity"), "-Infinity"),
        ("sum", ("Infinity", "-Infinity"), "NaN"),
        ("mean", ("Infinity", 1.0), "Infinity"),
    ],
)
def test_the_result_is_that_of_the_values_in_whatever_order_the_ranks_have_them(
    how: Any, values: tuple[Any, ...], result: Any
) -> None:
    for order in permutations(values):
        (made,) = of(how, *order).values()
        assert (made, type(made)) == (result, type(result))


def test_each_keeps_the_others_beside_rank_0() -> None:
    assert of("each", 1.0, "NaN", "text") == {"loss": 1.0, "loss/rank1": "NaN", "loss/rank2": "text"}


def test_what_is_not_named_is_rank_0s_whatever_it_is() -> None:
    rule = Rule(by_name=(("loss", "mean"), ("n", "sum")))
    made = one(rule, (("step", "loss", "n", "note"), (4, 1.0, 10, "a")), (("n", "loss"), (30, 3.0)))
    assert made == {"step": 4, "loss": 2.0, "n": 40, "note": "a"}


def test_one_way_for_all_leaves_what_is_no_number_to_rank_0() -> None:
    keys = ("loss", "name", "best", "parts", "none")
    made = one(MEAN, (keys, (1.0, "a", True, [1], None)), (keys, (3.0, "b", False, [2], None)))
    assert made == {"loss": 2.0, "name": "a", "best": True, "parts": [1], "none": None}


@pytest.mark.parametrize(
    ("rule", "first", "second", "problem"),
    [
        (MEAN, {"loss": 1.0, "lr": 0.1}, {"loss": 1.0}, "in report 1, rank 0 has 'lr' and rank 1 has not: "),
        (MEAN, {"loss": 1.0}, {"loss": 1.0, "lr": 0.1}, "in report 1, rank 1 has 'lr' and rank 0 has not: "),
        (
            MEAN,
            {"loss": 1.0},
            {"loss": "bad"},
            "in report 1, 'loss' of rank 1 is 'bad', which is not a number: ",
        ),
        (
            Rule(by_name=(("loss", "mean"),)),
            {"loss": True},
            {"loss": 1.0},
            "in report 1, 'loss' of rank 0 is True, which is not a number: ",
        ),
        (
            Rule(by_name=(("loss", "mean"),)),
            {"loss": "good"},
            {"loss": "bad"},
            "in report 1, 'loss' of rank 0 is 'good', which is not a number: ",
        ),
        (
            Rule(by_name=(("loss", "each"),)),
            {"loss": 1, "loss/rank1": 2},
            {"loss": 1},
            "'loss/rank1' has the name that scaling.metrics gives to another rank's metric: ",
        ),
    ],
)
def test_reports_that_do_not_match_are_named_by_rank_report_and_metric(
    rule: Rule, first: dict[str, Any], second: dict[str, Any], problem: str
) -> None:
    made = one(rule, *((tuple(each), tuple(each.values())) for each in (first, second)))
    assert isinstance(made, str)
    assert made.startswith(problem)


# -- when it is said ---------------------------------------------------------------------------------------


def test_a_report_is_said_once_all_ranks_have_made_it_and_an_answer_waits_for_that() -> None:
    driven = at_work(members=3)
    assert driven.say(0, rows(0, 1.0, 2.0, waits=True)).events == []
    assert driven.say(2, rows(0, 3.0, 4.0, 5.0)).events == []
    assert said(driven.say(1, rows(0, 5.0))) == [(0, ("loss",), [[3.0]])]
    assert not any(event.is_waiting for event in driven.events if isinstance(event, ev.TrialReported))
    assert said(driven.say(1, rows(1, 6.0))) == [(1, ("loss",), [[4.0]])]
    assert [event.is_waiting for event in driven.events if isinstance(event, ev.TrialReported)] == [True]


def test_a_request_for_an_answer_without_a_report_keeps_its_place() -> None:
    """`report(wait=True)` with a checkpoint asks for it after the checkpoint."""
    driven = at_work().say(0, rows(0, 1.0), msg.Upcoming(**WHO, report=0), saved(0, 0), rows(1, waits=True))
    assert driven.events == []
    driven.say(1, rows(0, 3.0))
    assert [type(event).__name__ for event in driven.events] == [
        "TrialReported",
        "CheckpointCommitted",
        "TrialReported",
    ]
    assert said(driven)[1] == (1, ("loss",), [])


def test_a_checkpoint_has_the_score_of_the_reduced_report_also_when_later_ones_have_overtaken_it() -> None:
    driven = at_work(Rule(default="mean", metric="loss", ranks_by="acc"))
    both = ("loss", "acc")
    driven.say(0, rows(0, (1.0, 10), keys=both), msg.Upcoming(**WHO, report=0), rows(1, (2.0, 20), keys=both))
    driven.say(0, msg.Upcoming(**WHO, report=1), rows(2, (3.0, 30), keys=both))
    driven.say(1, rows(0, (3.0, 12), (4.0, 22), (5.0, 32), keys=both))
    for number in (0, 1):
        (event,) = driven.say(0, saved(number, number)).events
        assert isinstance(event, ev.CheckpointCommitted)
        assert (event.score, event.rank) == (2.0 + number, 11.0 + 10 * number)


def test_a_checkpoint_waits_for_the_report_that_it_belongs_to() -> None:
    driven = at_work().say(0, rows(0, 1.0), msg.Upcoming(**WHO, report=0), saved(0, 0))
    assert driven.events == []
    driven.say(1, rows(0, 3.0))
    assert [type(event) for event in driven.events] == [ev.TrialReported, ev.CheckpointCommitted]


def test_without_a_rule_the_others_are_not_heard() -> None:
    driven = Driven(can_spare=False, world_size=2).open(0).up(0).up(1).hand(0, 7)
    driven.say(0, began(7, 1)).say(1, began(7, 1), rows(0, 5.0))
    assert driven.events == []
    assert said(driven.say(0, rows(0, 1.0))) == [(0, ("loss",), [[1.0]])]


@pytest.mark.parametrize("seed", range(20))
def test_in_whatever_pieces_reports_arrive_the_same_is_said(seed: int) -> None:
    random = Random(seed)
    count, ranks = 40, 3
    made = [[float(random.randrange(100)) for _ in range(count)] for _ in range(ranks)]
    names = [("loss",) if random.random() < 0.7 else ("loss", "x") for _ in range(count)]
    found = GangReports(Rule(by_name=(("loss", "sum"),), metric="loss"), ranks)
    at = [0] * ranks
    out: list[msg.FromWorker] = []
    while min(at) < count:
        rank = random.choice([rank for rank in range(ranks) if at[rank] < count])
        keys, first = names[at[rank]], at[rank]
        while at[rank] < count and names[at[rank]] == keys and random.random() < 0.8:
            at[rank] += 1
        values = [made[rank][index] for index in range(first, at[rank])]
        message = rows(first, *((value,) * len(keys) for value in values), keys=keys)
        if values:
            out += found.take(rank, message)
    assert found.problem == ""
    flat = [
        (each.first + place, each.keys, row[0])
        for each in out
        if isinstance(each, msg.TrialReported)
        for place, row in enumerate(each.rows)
    ]
    assert flat == [(i, names[i], sum(made[rank][i] for rank in range(ranks))) for i in range(count)]


# -- reports that are missing --------------------------------------------------------------------------------


def fault(driven: Driven) -> str:
    (event,) = driven.events
    assert isinstance(event, ev.TrialFailed)
    assert event.failure.type == gang.REPORTS_DIFFER
    return event.failure.message


def test_a_rank_that_returns_with_fewer_reports_fails_the_attempt_and_the_others_are_ended() -> None:
    driven = at_work().say(0, rows(0, 1.0, 2.0)).say(1, returned(7, 1))
    assert [(worker, kind) for worker, kind, *_ in driven.sent()] == [(0, "stop")]
    assert [kind for _, kind, *_ in driven.later(GANG_GRACE_S).sent()] == ["interrupt", "interrupt"]
    problem = fault(driven.say(0, stopped(7, 1)))
    assert problem.startswith("rank 1 returned after no reports, and rank 0 has made 2: report equally often")
    assert problem.endswith("or remove scaling.metrics: then those of rank 0 count")


def test_a_rank_that_reports_on_after_another_has_returned_fails_the_attempt() -> None:
    driven = at_work().say(0, rows(0, 1.0), returned(7, 1)).say(1, rows(0, 1.0, 2.0))
    assert "rank 0 returned after 1 report, and rank 1 has made 2" in fault(driven.say(1, returned(7, 1)))


def test_reports_that_never_match_are_not_tried_again() -> None:
    driven = at_work().say(0, rows(0, 1.0)).say(1, rows(0, "bad"), stopped(7, 1)).say(0, stopped(7, 1))
    (event,) = driven.events
    assert isinstance(event, ev.TrialFailed)
    kind = classify(event.failure)
    assert kind == "user_error"
    for reports, is_tried_again in [(0, False), (3, True)]:
        policy = FailurePolicy(max_failures=1)
        assert is_retried(event.failure, kind, 0, reports, policy) is is_tried_again


@pytest.mark.parametrize(
    ("metrics", "rule"),
    [
        ("rank0", None),
        ("max", Rule(default="max", metric="loss")),
        ({"loss": "mean", "n": "sum"}, Rule(by_name=(("loss", "mean"), ("n", "sum")), metric="loss")),
    ],
)
def test_the_rule_is_that_of_the_spec(metrics: Any, rule: Rule | None) -> None:
    spec = SweepSpec(
        trainable="m:f",
        param_space={"x": 1},
        metric="loss",
        mode="min",
        name="a",
        scaling={"metrics": metrics},
    )
    assert FleetPolicy.of(spec).reduction == rule


def test_ranks_that_return_with_equally_many_reports_have_returned() -> None:
    driven = at_work().say(0, rows(0, 1.0), returned(7, 1)).say(1, rows(0, 3.0))
    assert said(driven) == [(0, ("loss",), [[2.0]])]
    assert [type(event) for event in driven.say(1, returned(7, 1)).events] == [ev.TrialReturned]


def test_what_waits_for_a_rank_that_never_reports_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduction, "AHEAD", 3)
    driven = at_work().say(0, rows(0, 1.0, 2.0, 3.0))
    assert driven.sent() == []
    driven.say(0, rows(3, 4.0)).say(0, rows(4, 5.0), stopped(7, 1)).say(1, stopped(7, 1))
    assert fault(driven).startswith("rank 0 has made 4 reports, and rank 1 0: ")


def test_nothing_is_said_after_a_report_that_does_not_match_not_even_its_checkpoint() -> None:
    driven = at_work().say(0, rows(0, 1.0), msg.Upcoming(**WHO, report=0))
    assert driven.say(1, rows(0, "bad")).events == []
    assert [(worker, kind) for worker, kind, *_ in driven.sent()] == [(0, "stop")], "the others follow it"
    assert driven.say(0, saved(0, 0), rows(1, 2.0)).events == []
    assert driven.say(1, rows(1, 2.0)).events == []
    assert "'loss' of rank 1 is 'bad'" in fault(driven.say(0, stopped(7, 1)).say(1, stopped(7, 1)))


def test_what_has_failed_or_was_stopped_already_does_not_fail_for_its_reports() -> None:
    driven = at_work().stop(0, 7).say(0, rows(0, 1.0), stopped(7, 1)).say(1, returned(7, 1))
    assert [type(event) for event in driven.events] == [ev.TrialStopped]
    driven = at_work().say(1, failed(7, 1, RAISED)).say(0, rows(0, 1.0), returned(7, 1))
    (event,) = driven.events
    assert isinstance(event, ev.TrialFailed)
    assert event.failure.message == "rank 1: boom"


def test_a_failure_that_came_first_stays_what_the_attempt_failed_of() -> None:
    driven = at_work(members=3).say(1, failed(7, 1, RAISED)).say(0, rows(0, 1.0)).say(2, returned(7, 1))
    (event,) = driven.say(0, stopped(7, 1)).events
    assert isinstance(event, ev.TrialFailed)
    assert event.failure.message == "rank 1: boom"


def test_a_trial_that_was_told_to_stop_has_its_grace_whatever_its_ranks_have_reported() -> None:
    driven = at_work().stop(0, 7, grace_s=60.0).say(0, rows(0, 1.0))
    assert driven.say(1, rows(0, "bad")).sent() == []
    assert driven.later(GANG_GRACE_S).sent() == []
    assert [type(event) for event in driven.say(1, stopped(7, 1)).say(0, stopped(7, 1)).events] == [
        ev.TrialStopped
    ]


def test_a_fault_outlives_the_kill_of_members_that_do_not_leave() -> None:
    driven = at_work().say(0, rows(0, 1.0)).say(1, returned(7, 1))
    driven.later(GANG_GRACE_S).later(2.0).link_closed(0)
    assert "rank 1 returned after no reports" in fault(driven)


# -- addresses ---------------------------------------------------------------------------------------------


def test_where_each_rank_has_a_port_all_are_told_all_once_all_have_one() -> None:
    driven = Driven(can_spare=False, world_size=2).open(0)
    for rank in (0, 1):
        driven.fleet.connected(rank, driven.at)
        driven.say(rank, msg.Ready(node="n", pid=1, host=f"h{rank}"))
    driven.hand(0, 7).say(0, began(7, 1), msg.Met(**WHO, port=50, is_each=True))
    assert driven.sent() == []
    driven.say(1, msg.Met(**WHO, port=51, is_each=True))
    meet = msg.Meet(**WHO, addresses=("h0:50", "h1:51"))
    sends = [action for action in driven.actions if type(action).__name__ == "Send"]
    assert [(send.worker, send.messages) for send in sends] == [(0, [meet]), (1, [meet])]
