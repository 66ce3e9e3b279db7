"""Invariants of the fleet after every input. Checked by the tests and by the simulator."""

from __future__ import annotations

from raysweep.fleet.machine import Fleet


def check(fleet: Fleet) -> None:
    """Check the fleet.

    Raises:
        AssertionError: names the invariant that does not hold, and where.
    """
    serving = [member for slot in fleet.slots.values() for member in slot.members]
    spares = [slot.spare for slot in fleet.slots.values() if slot.spare is not None]
    known = {worker.number for worker in [*serving, *spares]}
    assert fleet.crew.numbers == known, f"workers {fleet.crew.numbers} are not those of the slots: {known}"
    held = [slot.worker.group.number for slot in fleet.slots.values()]
    assert len(set(held)) == len(held), f"a group is held twice: {held}"
    groups = set(fleet.groups.numbers)
    assert groups == {*held, *fleet.groups.free}, f"groups {groups}, held {held}, free {fleet.groups.free}"
    for slot in fleet.slots.values():
        ranks = [member.rank for member in slot.members]
        assert ranks == list(range(len(ranks))), f"slot {slot.number}: ranks {ranks}"
        assert all(member.group is slot.worker.group for member in slot.members), (
            f"slot {slot.number}: groups"
        )
        states = [handed.state for handed in slot.handed.values()]
        assert states.count("begun") <= 1, f"slot {slot.number} runs two trials"
        is_reached = all(member.state in ("ready", "retiring", "dying") for member in slot.members)
        assert is_reached or set(states) <= {"unsent"}, f"slot {slot.number}: {states}, {slot.worker.state}"
        assert slot.spare is None or slot.spare.group is slot.worker.group, f"slot {slot.number}: spare"
        asked = [number for trials in slot.asked_back for number in trials]
        assert len(set(asked)) == len(asked), f"slot {slot.number}: asked for twice: {asked}"
