"""Sweeps that wait for places on a shared cluster get them in the order of waiting."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from raysweep.cluster.ray.waiting_order import PREFIX, STALE_S, Places, Ticket, Tickets, choose

ONE = {"CPU": 1.0}
TWO = {"CPU": 2.0}


class FakeNotes(dict[str, str]):
    """The control store."""

    def put(self, key: str, value: str) -> None:
        self[key] = value

    def delete(self, key: str) -> None:
        self.pop(key, None)

    def keys(self, prefix: str = "") -> list[str]:  # type: ignore[override]
        return [key for key in self if key.startswith(prefix)]


class Cluster:
    """A number of CPUs, and sweeps that want places on it."""

    def __init__(self, cpus: float) -> None:
        self.notes = FakeNotes()
        self.clock = 0.0
        self.free = {"CPU": cpus}
        self.grows = False

    def sweep(self, name: str, *wanted: Mapping[str, float]) -> Sweep:
        self.clock += 1
        return Sweep(self, name, wanted)


class Sweep:
    def __init__(self, cluster: Cluster, name: str, wanted: Collection[Mapping[str, float]]) -> None:
        self._cluster = cluster
        self._name = name
        self.wanted = dict(enumerate(wanted))
        self.asked_for: dict[str, Mapping[str, float]] = {}
        self.placed: set[str] = set()
        self._places = Places(
            Tickets(cluster.notes, name, lambda: cluster.clock),
            lambda: None if cluster.grows else (dict(cluster.free), set(self.placed)),
        )

    def look(self) -> bool:
        """Whether it is to look again. Ray places what fits at once."""
        chosen, again = self._places.decide(list(self.wanted.items()), self.asked_for, self._cluster.clock)
        for number in chosen:
            self.asked_for[f"{self._name}{number}"] = self.wanted.pop(number)
        self.place()
        return again

    def place(self) -> None:
        for group, asked in self.asked_for.items():
            if group not in self.placed and self._cluster.free["CPU"] >= asked["CPU"]:
                self._cluster.free["CPU"] -= asked["CPU"]
                self.placed.add(group)

    def end(self) -> None:
        self._cluster.free["CPU"] += sum(self.asked_for[group]["CPU"] for group in self.placed)
        self.placed.clear()
        self.asked_for.clear()
        self._places.leave()


def test_a_sweep_alone_gets_all_that_there_is() -> None:
    cluster = Cluster(3)
    sweep = cluster.sweep("a", ONE, ONE, ONE, ONE)
    assert sweep.look()
    assert len(sweep.placed) == 3
    assert sweep.look()
    assert not cluster.notes
    sweep.end()


def test_those_that_wait_are_served_in_order_whoever_looks_first() -> None:
    cluster = Cluster(1)
    running = cluster.sweep("r", ONE)
    running.look()
    assert not running.look()
    waiting = [cluster.sweep(name, ONE) for name in "abc"]
    for sweep in waiting:
        sweep.look()
    running.end()
    served = []
    for _ in range(3):
        for sweep in reversed(waiting):
            sweep.look()
        (first,) = [sweep for sweep in waiting if sweep.placed]
        served.append(waiting.index(first))
        first.look()
        first.end()
    assert served == [0, 1, 2]
    assert not cluster.notes


def test_a_large_one_is_not_passed_by_small_ones_for_ever() -> None:
    cluster = Cluster(2)
    small = [cluster.sweep("s1", ONE), cluster.sweep("s2", ONE)]
    for sweep in small:
        sweep.look()
        sweep.look()
    large, later = cluster.sweep("large", TWO), cluster.sweep("later", ONE)
    large.look()
    small[0].end()
    later.look()
    assert not later.placed
    small[1].end()
    later.look()
    large.place()
    assert large.placed
    large.look()
    assert not later.look() or not later.placed
    large.end()
    later.look()
    assert later.placed


def test_one_that_runs_gets_no_further_place_before_one_that_waits() -> None:
    cluster = Cluster(2)
    other, running = cluster.sweep("o", ONE), cluster.sweep("r", ONE, ONE)
    for sweep in (other, running):
        sweep.look()
        sweep.look()
    waiting = cluster.sweep("w", ONE)
    waiting.look()
    other.end()
    running.look()
    assert len(running.placed) == 1
    waiting.look()
    assert waiting.placed


def test_what_those_before_leave_over_may_be_used() -> None:
    gpu = Ticket(1.0, "gpu", {"CPU": 1.0, "GPU": 1.0})
    own = Ticket(2.0, "own", ONE)
    assert choose([(7, ONE)], own, [gpu], [], {"CPU": 2.0}) == [7]
    assert choose([(7, ONE)], own, [gpu], [], {"CPU": 1.0}) == []
    assert choose([(7, ONE)], own, [Ticket(3.0, "later", ONE)], [], {"CPU": 0.0}) == [7]
    assert choose([(7, ONE), (8, ONE)], own, [Ticket(3.0, "later", ONE)], [], {"CPU": 2.0}) == [7]
    assert choose([(7, ONE), (8, ONE)], own, [], [ONE], {"CPU": 2.0}) == [7]
    assert choose([(7, ONE), (8, ONE), (9, ONE)], None, [gpu], [], {"CPU": 3.0}) == [7, 8]


def test_the_ticket_of_a_dead_controller_counts_no_more() -> None:
    cluster = Cluster(0)
    dead, living = cluster.sweep("d", ONE), cluster.sweep("l", ONE)
    dead.look()
    living.look()
    assert not living.asked_for
    cluster.clock += STALE_S
    living.look()
    assert not living.asked_for
    cluster.clock += 1
    living.look()
    assert living.asked_for
    assert len(cluster.notes) == 1


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[]", '{"asked": 3}', '{"asked": {"CPU": "x"}, "renewals": 1}']
)
def test_a_ticket_that_cannot_be_read_counts_for_nothing(text: str) -> None:
    cluster = Cluster(1)
    cluster.notes[f"{PREFIX}0000000000.000000/x"] = text
    sweep = cluster.sweep("a", ONE)
    sweep.look()
    assert sweep.placed


def test_where_nodes_can_be_added_ray_is_asked_for_all_at_once() -> None:
    cluster = Cluster(0)
    cluster.grows = True
    sweep = cluster.sweep("a", ONE, ONE)
    assert not sweep.look()
    assert len(sweep.asked_for) == 2
