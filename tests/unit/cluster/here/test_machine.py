"""This machine is handed out: never more than there is, GPUs by name, and all of it comes back."""

from __future__ import annotations

import os
from random import Random

import pytest

from raysweep.cluster.here import machine as module
from raysweep.cluster.here.machine import Given, Machine, find_gpus


def make(cpus: float = 4.0, gpus: int = 2) -> Machine:
    return Machine(cpus, 8e9, [str(number) for number in range(gpus)])


def taken(machine: Machine, *bundles: dict[str, float]) -> Given:
    given = machine.take(bundles)
    assert given is not None
    return given


def test_a_group_gets_all_of_its_bundles_or_none() -> None:
    machine = make(cpus=4.0)
    taken(machine, {"CPU": 1.0}, {"CPU": 2.0})
    assert machine.take([{"CPU": 1.0}, {"CPU": 1.0}]) is None
    assert machine.free["CPU"] == 1.0
    taken(machine, {"CPU": 1.0})


def test_what_this_machine_does_not_have_is_never_free() -> None:
    assert make().take([{"licence": 1.0}]) is None
    assert make(gpus=0).take([{"GPU": 1.0}]) is None


def test_parts_of_a_gpu_fill_one_before_the_next() -> None:
    machine = make()
    names = [taken(machine, {"GPU": 0.5}).gpus[0] for _ in range(4)]
    assert names == [("0",), ("0",), ("1",), ("1",)]
    assert machine.take([{"GPU": 0.5}]) is None


def test_a_whole_gpu_is_none_that_others_share() -> None:
    machine = make()
    half = taken(machine, {"GPU": 0.5})
    assert taken(machine, {"GPU": 1.0}).gpus == (("1",),)
    assert machine.take([{"GPU": 1.0}]) is None, "half of the first is free, and half of none"
    machine.give_back(half)
    assert taken(machine, {"GPU": 1.0}).gpus == (("0",),)


def test_each_member_of_a_gang_has_gpus_of_its_own() -> None:
    assert taken(make(gpus=4), {"GPU": 2.0}, {"GPU": 2.0}).gpus == (("0", "1"), ("2", "3"))


def test_users_hear_that_something_is_free() -> None:
    machine, heard = make(), list[str]()
    given = taken(machine, {"CPU": 4.0})
    first, second = lambda: heard.append("first"), lambda: heard.append("second")
    machine.join(first)
    machine.join(second)
    machine.part(first)
    machine.give_back(given)
    assert heard == ["second"]


def test_at_random_nothing_is_handed_out_twice_and_all_comes_back() -> None:
    rng, machine = Random(1), make(cpus=8.0, gpus=3)
    held: list[Given] = []
    for _ in range(2000):
        if held and rng.random() < 0.5:
            machine.give_back(held.pop(rng.randrange(len(held))))
            continue
        amounts = [{"CPU": rng.choice([0.5, 1.0]), "GPU": rng.choice([0.25, 0.5, 1.0])} for _ in range(2)]
        given = machine.take(amounts[: rng.randint(1, 2)])
        held += [given] if given is not None else []
        share: dict[str, float] = {}
        for group in held:
            for bundle, names in zip(group.bundles, group.gpus, strict=True):
                for name in names:
                    share[name] = share.get(name, 0.0) + bundle["GPU"]
        assert all(amount <= 1.0 for amount in share.values())
    for group in held:
        machine.give_back(group)
    assert machine.free == machine.total
    assert taken(machine, {"GPU": 3.0}).gpus == (("0", "1", "2"),)


@pytest.mark.parametrize(
    ("said", "names"),
    [("", ()), ("-1", ()), ("NoDevFiles", ()), ("2,GPU-ab", ("2", "GPU-ab")), (" 0 , 1 ", ("0", "1"))],
)
def test_the_gpus_are_those_that_this_process_may_use(
    said: str, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", said)
    assert find_gpus() == names


def test_without_a_driver_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(module, "find_driver", lambda: None)
    assert find_gpus() == ()


def test_the_cpus_are_those_that_this_process_may_use() -> None:
    assert 1 <= module.count_cpus() <= len(os.sched_getaffinity(0))
    assert module.memory_bytes() > 2**20
