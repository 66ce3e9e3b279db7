"""How the slots of a cluster are divided among sweeps."""

from __future__ import annotations

import time
from math import ceil, floor, inf

from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.cluster.sharing.division import Claim, Part, divide

CPU = {"CPU": 1.0}


def claim(owner: str, **fields: object) -> Claim:
    return Claim(**{"owner": owner, "bundle": CPU, "wants": 100} | fields)  # type: ignore[arg-type]


def slots(total: float, *claims: Claim) -> list[int]:
    """The parts in the order of the claims."""
    parts = divide(claims, {"CPU": total})
    return [parts[each.owner].slots for each in claims]


def test_weights_divide_the_cluster() -> None:
    assert slots(8, claim("a", weight=2), claim("b"), claim("c")) == [4, 2, 2]


def test_a_sweep_alone_gets_all_that_it_wants() -> None:
    assert slots(8, claim("a", weight=0.1, priority=-5)) == [8]
    assert slots(8, claim("a", wants=3)) == [3]


def test_what_one_does_not_want_goes_to_the_others_by_their_weights() -> None:
    assert slots(8, claim("a", weight=2, wants=2), claim("b", weight=2), claim("c")) == [2, 4, 2]


def test_a_higher_priority_gets_all_that_it_wants_first() -> None:
    assert slots(8, claim("a", weight=100), claim("b", priority=10, wants=6)) == [2, 6]


def test_a_sweep_gets_what_it_needs_for_its_deadline_and_its_part_of_the_rest() -> None:
    assert slots(8, claim("a"), claim("b", deadline=100.0, needed=6)) == [2, 6]
    assert slots(8, claim("a"), claim("b", deadline=100.0, needed=2)) == [4, 4]
    assert slots(8, claim("a"), claim("b", deadline=100.0, needed=60)) == [0, 8]


def test_the_nearer_deadline_goes_first() -> None:
    claims = claim("a", deadline=200.0, needed=6), claim("b", deadline=100.0, needed=6)
    assert slots(8, *claims) == [2, 6]


def test_a_deadline_is_no_priority() -> None:
    assert slots(8, claim("a", priority=1), claim("b", deadline=100.0, needed=8)) == [8, 0]


def test_slots_of_different_shapes_share_by_their_largest_part_of_one_resource() -> None:
    gpu = claim("gpu", bundle={"CPU": 1.0, "GPU": 1.0})
    parts = divide([gpu, claim("cpu", bundle={"CPU": 4.0})], {"CPU": 32.0, "GPU": 4.0})
    assert (parts["gpu"].slots, parts["cpu"].slots) == (4, 7)


def test_those_that_want_no_gpu_get_the_cpus_that_are_left_when_gpus_are_used_up() -> None:
    claims = [claim(name, bundle={"CPU": 1.0, "GPU": 1.0}) for name in ("a", "b")]
    parts = divide([*claims, claim("c")], {"CPU": 16.0, "GPU": 2.0})
    assert [parts[name].slots for name in "abc"] == [1, 1, 14]


def test_who_had_less_of_late_gets_the_slot_that_cannot_be_split() -> None:
    assert slots(3, claim("a", used=1.9, holds=2), claim("b", used=1.1, holds=1)) == [1, 2]


def test_a_slot_does_not_go_back_and_forth_for_little() -> None:
    assert slots(3, claim("a", used=1.6, holds=2), claim("b", used=1.4, holds=1)) == [2, 1]


def test_only_a_nearer_deadline_that_lacks_slots_hurries() -> None:
    holder = claim("a", holds=8)

    def hurried(**fields: object) -> bool:
        return divide([holder, claim("b", **fields)], {"CPU": 8.0})["a"].is_hurried

    assert hurried(deadline=100.0, needed=6)
    assert hurried(deadline=100.0, needed=6, holds=5)
    assert not hurried(deadline=100.0, needed=6, holds=6)
    assert not hurried(deadline=100.0)
    assert not hurried(priority=5)
    later = divide([claim("a", holds=8, deadline=50.0), claim("b", deadline=100.0, needed=6)], {"CPU": 8.0})
    assert not later["a"].is_hurried


def test_who_holds_no_more_than_its_part_is_not_hurried() -> None:
    parts = divide([claim("a", holds=2), claim("b", deadline=9.0, needed=6, holds=1)], {"CPU": 8.0})
    assert parts["a"] == Part(slots=2)


claims_of_one_shape = st.lists(
    st.builds(
        dict,
        weight=st.sampled_from([0.5, 1.0, 2.0, 3.0, 10.0]),
        priority=st.sampled_from([0, 0, 0, 1]),
        wants=st.integers(0, 30),
        holds=st.integers(0, 10),
        used=st.floats(0, 10),
        deadline=st.sampled_from([None, 10.0, 20.0]),
        needed=st.integers(0, 10),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(claims_of_one_shape, st.integers(0, 40))
def test_no_slot_is_given_twice_and_none_idles_while_one_is_wanted(given_: list[dict], total: int) -> None:
    claims = [claim(f"s{number}", **fields) for number, fields in enumerate(given_)]
    got = slots(total, *claims)
    assert sum(got) == min(total, sum(each.wants for each in claims))
    assert all(0 <= count <= each.wants for count, each in zip(got, claims, strict=True))
    lowest = min((each.priority for each, count in zip(claims, got, strict=True) if count), default=inf)
    for each, count in zip(claims, got, strict=True):
        assert each.priority <= lowest or count == each.wants, "a lower priority got a slot before it"


@settings(max_examples=300, deadline=None)
@given(claims_of_one_shape, st.integers(0, 40))
def test_each_gets_its_part_by_weight_to_within_one_slot(given_: list[dict], total: int) -> None:
    plain = {"priority": 0, "deadline": None, "needed": 0}
    claims = [claim(f"s{number}", **fields | plain) for number, fields in enumerate(given_)]
    level = _level(claims, total)
    for each, count in zip(claims, slots(total, *claims), strict=True):
        exact = min(float(each.wants), level * each.weight)
        assert floor(exact - 1e-4) <= count <= ceil(exact + 1e-4), (exact, count)


def _level(claims: list[Claim], total: float) -> float:
    """Slots for each unit of weight, if slots could be split: found by another way than `divide` does."""
    left, open_ = total, sorted(claims, key=lambda each: each.wants / each.weight)
    for number, each in enumerate(open_):
        level = left / sum(other.weight for other in open_[number:])
        if each.wants / each.weight > level:
            return level
        left -= each.wants
    return inf


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.builds(
            dict,
            bundle=st.fixed_dictionaries({"CPU": st.integers(0, 4), "GPU": st.sampled_from([0, 0, 0.25, 1])}),
            weight=st.sampled_from([1.0, 2.0]),
            wants=st.integers(0, 20),
            needed=st.integers(0, 3),
            deadline=st.sampled_from([None, 5.0]),
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 32),
    st.integers(0, 8),
)
def test_slots_of_any_shape_fit_and_leave_no_room_for_one_that_is_wanted(
    given_: list[dict], cpus: int, gpus: int
) -> None:
    claims = [claim(f"s{number}", **fields) for number, fields in enumerate(given_)]
    total = {"CPU": float(cpus), "GPU": float(gpus)}
    parts = divide(claims, total)
    used = {name: sum(parts[c.owner].slots * c.bundle[name] for c in claims) for name in total}
    assert all(used[name] <= total[name] + 1e-6 for name in total)
    for each in claims:
        has_room = all(total[name] - used[name] >= each.bundle[name] for name in total)
        assert parts[each.owner].slots == each.wants or not has_room, each


def test_many_sweeps_are_divided_at_once() -> None:
    began = time.perf_counter()
    got = slots(1000, *[claim(f"s{number}", wants=1000) for number in range(50)])
    assert set(got) == {20}
    assert time.perf_counter() - began < 0.5
