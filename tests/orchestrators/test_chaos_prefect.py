"""How the stress run of Prefect draws approvals, and what it calls a lie about one."""

from __future__ import annotations

from collections import Counter

import pytest

from raysweep.outcome import Decision
from raysweep.runs.across_runs.approvals import SILENCE
from tests.orchestrators.chaos_prefect import ASKED, WAYS, Approving, draw, lies_of_decision


@pytest.mark.parametrize("seed", range(5))
def test_each_way_comes_once_before_any_comes_again(seed: int) -> None:
    ways = [way for night in range(60) if (way := draw(seed, night).way)]
    assert set(ways[: len(WAYS)]) == set(WAYS)
    counts = Counter(ways)
    assert max(counts.values()) - min(counts.values()) <= 1


def test_two_of_three_nights_ask_and_a_night_is_the_same_whenever_it_is_drawn() -> None:
    nights = [draw(3, night) for night in range(300)]
    assert sum(bool(each.way) for each in nights) / 300 == pytest.approx(ASKED, abs=0.08)
    assert nights[40] == draw(3, 40)
    assert nights != [draw(4, night) for night in range(300)]


@pytest.mark.parametrize("way", WAYS)
def test_what_people_say_and_what_the_flow_is_given_follow_from_the_way(way: str) -> None:
    approving = Approving(way=way)
    given = approving.parameters["approval"]
    if way.startswith("silence"):
        assert approving.words == []
        assert given["on_silence"] == way.split()[1]
    else:
        assert [f"{where} {'yes' if approved else 'no'}" for where, approved in approving.words] == way.split(
            ", "
        )
        assert given.keys() == {"timeout"}  # silence does not decide


def decision(by: str, *, approved: bool) -> Decision:
    return Decision(approved=approved, by=by, at=0.0)


YES: list[tuple[str, bool]] = [("form", True)]


@pytest.mark.parametrize(
    ("way", "said", "decided", "lie"),
    [
        ("form yes", YES, decision("form", approved=True), ""),
        ("form yes", YES, decision("form", approved=False), "people said"),
        ("form yes", YES, decision("command", approved=True), "people said"),
        ("form yes", [], decision("form", approved=True), "people said"),
        ("form yes", YES, decision(SILENCE, approved=False), "silence decided"),
        ("form yes, command no", [*YES, ("command", False)], decision("command", approved=False), ""),
        ("silence reject", [], decision(SILENCE, approved=False), ""),
        ("silence reject", [], decision(SILENCE, approved=True), "silence was to mean False"),
        ("silence promote", [], decision(SILENCE, approved=True), ""),
        ("silence promote", [], decision("form", approved=True), "people said"),
        ("form yes", [], decision("raysweep", approved=False), ""),
    ],
)
def test_a_decision_is_what_people_said_or_what_silence_means(
    way: str, said: list[tuple[str, bool]], decided: Decision, lie: str
) -> None:
    found = list(lies_of_decision(Approving(way=way), said, decided))
    assert (lie in found[0]) if lie else found == []
