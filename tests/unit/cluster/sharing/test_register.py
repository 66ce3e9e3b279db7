"""The leases of sweeps that share a cluster."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from raysweep.cluster.sharing.division import Claim
from raysweep.cluster.sharing.register import ALONE, PREFIX, STALE_S, Register, Share, Sight
from tests.unit.cluster.sharing.shared import FakeNotes

ONE = {"CPU": 1.0}


class Cluster:
    def __init__(self, cpus: float = 8.0) -> None:
        self.notes, self.now, self.cpus, self.free = FakeNotes(), 0.0, cpus, cpus
        self.placed: set[str] = set()

    def register(self, sweep_id: str) -> Register:
        return Register(self.notes, sweep_id, self.look_around, lambda: self.now)

    def look_around(self) -> Sight:
        placed = {group: ["node"] for group in self.placed}
        return Sight(free={"node": {"CPU": self.free}}, total={"CPU": self.cpus}, placed=placed)


def look(register: Register, wants: int = 100, groups: Sequence[str] = (), **fields: object) -> Share:
    claim = Claim(owner="", bundle=ONE, wants=wants, **fields)  # type: ignore[arg-type]
    return register.look(claim, {group: [ONE] for group in groups})


def test_alone_there_is_no_limit() -> None:
    assert look(Cluster().register("a")) == ALONE


def test_each_reads_what_the_others_want() -> None:
    cluster = Cluster()
    first, second = cluster.register("a"), cluster.register("b")
    look(first, weight=3)
    assert look(second) == Share(slots=2, beside=1)
    assert look(first, weight=3) == Share(slots=6, beside=1)


def test_who_leaves_is_gone_and_does_not_come_back() -> None:
    cluster = Cluster()
    first, second = cluster.register("a"), cluster.register("b")
    look(first)
    look(second)
    second.leave()
    assert look(second) == ALONE
    assert look(first) == ALONE
    assert len(cluster.notes) == 1


def test_a_lease_that_is_not_renewed_is_removed() -> None:
    cluster = Cluster()
    first, second = cluster.register("a"), cluster.register("b")
    look(second)
    look(first)
    cluster.now = STALE_S - 1
    assert look(first).slots == 4
    look(second)
    cluster.now = 2 * STALE_S - 2
    assert look(first).slots == 4, "it was renewed"
    cluster.now = 4 * STALE_S
    assert look(first) == ALONE
    assert len(cluster.notes) == 1


def test_the_lease_of_an_earlier_controller_of_the_sweep_counts_for_nothing() -> None:
    cluster = Cluster()
    look(cluster.register("a"))
    assert look(cluster.register("a")) == ALONE
    assert len(cluster.notes) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        '{"renewals": 1}',
        '{"renewals": 1, "owner": "x", "bundle": {"CPU": 1}, "wants": 5, "weight": 0}',
        '{"renewals": 1, "owner": "x", "bundle": {"CPU": -1}, "wants": 5}',
        '{"renewals": 1, "owner": "x", "bundle": {"CPU": 1}, "wants": NaN}',
        '{"renewals": 1, "owner": "x", "bundle": {"CPU": 1}, "wants": "5"}',
        *(
            json.dumps({"renewals": 1, "owner": "x", "bundle": {"CPU": 1}, "wants": 5} | odd)
            for odd in (
                {"owner": 5},
                {"priority": None},
                {"priority": "x"},
                {"deadline": "tomorrow"},
                {"off": None},
                {"off": [["node"]]},
                {"holds": 2.5},
                {"places": {"node": 1.5}},
            )
        ),
    ],
)
def test_a_lease_that_cannot_be_read_is_passed_over(text: str) -> None:
    cluster = Cluster()
    cluster.notes.put(f"{PREFIX}other/1", text)
    assert look(cluster.register("a")) == ALONE


def test_a_lease_of_a_later_version_counts_as_far_as_it_is_known() -> None:
    cluster = Cluster()
    lease = {"renewals": 1, "owner": "x", "bundle": {"CPU": 1}, "wants": 5, "of_a_later_version": 1}
    cluster.notes.put(f"{PREFIX}other/1", json.dumps(lease))
    assert look(cluster.register("a")).slots == 4


def test_sweeps_of_one_name_and_key_in_two_places_are_two() -> None:
    cluster = Cluster()
    first, second = cluster.register("s3://x/night-1"), cluster.register("s3://y/night-1")
    look(first)
    assert look(second).slots == 4
    assert look(first).slots == 4


def test_what_others_hold_is_left_to_them() -> None:
    cluster = Cluster()
    first, second = cluster.register("a"), cluster.register("b")
    cluster.placed, cluster.free = {"a0", "b0"}, 2.0  # two of the sweeps, four of a plain job
    look(first, groups=["a0"])
    look(second, groups=["b0"])
    for _ in range(3):
        assert look(first, groups=["a0"]).slots == 2


def test_a_slot_that_opens_is_not_taken_for_another_job() -> None:
    cluster = Cluster()
    first, second = cluster.register("a"), cluster.register("b")
    look(first)
    look(second)
    assert look(first).slots == 4
    cluster.free = 7.0  # placed a moment ago, and in no lease yet
    assert look(first).slots == 4
    cluster.placed = {"b0"}
    look(second, groups=["b0"])
    assert look(first).slots == 4


def test_groups_without_a_place_hold_nothing() -> None:
    cluster = Cluster()
    register = cluster.register("a")
    look(register, groups=["a0", "a1"])
    cluster.placed = {"a1"}
    look(register, groups=["a0", "a1"])
    lease = json.loads(next(iter(cluster.notes.values())))
    assert (lease["holds"], lease["held"]) == (1, {"CPU": 1.0})


def test_between_two_trials_a_sweep_wants_no_less() -> None:
    cluster = Cluster()
    first, second = cluster.register("a"), cluster.register("b")
    look(second)
    look(first, wants=4)
    cluster.now = 1.0
    look(first, wants=1)
    assert look(second).slots == 4
    cluster.now = 7.0
    look(first, wants=1)
    assert look(second).slots == 7
    look(first, wants=0)
    assert look(second).slots == 8, "it has nothing left to do"


def test_many_sweeps_look_less_often() -> None:
    cluster = Cluster()
    registers = [cluster.register(f"s{number}") for number in range(50)]
    for register in registers:
        look(register)
    look(registers[0])
    assert registers[0].pause_s == pytest.approx(5.0)


def test_recent_use_is_a_mean_by_weight() -> None:
    cluster = Cluster()
    register = cluster.register("a")
    cluster.placed = {"a0", "a1"}
    for _ in range(2000):
        cluster.now += 1.0
        look(register, groups=["a0", "a1"], weight=4.0)
    lease = json.loads(next(iter(cluster.notes.values())))
    assert lease["used"] == pytest.approx(0.5, abs=0.01)
