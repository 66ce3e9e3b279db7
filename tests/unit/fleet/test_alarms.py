"""What is due when."""

from __future__ import annotations

from collections.abc import Callable

from raysweep.fleet.alarms import Alarms


def test_the_next_one_is_known_and_those_of_one_moment_keep_their_order() -> None:
    alarms, called = Alarms(), list[str]()

    def call(name: str) -> Callable[[float], None]:
        return lambda at: called.append(f"{name} at {at:g}")

    assert alarms.next_at is None
    alarms.set(3.0, call("late"))
    alarms.set(2.0, call("first"))
    alarms.set(2.0, call("second"))
    assert alarms.next_at == 2.0
    for due in alarms.take_due(2.5):
        due(2.5)
    assert called == ["first at 2.5", "second at 2.5"]
    assert alarms.next_at == 3.0
    assert not list(alarms.take_due(2.9))
