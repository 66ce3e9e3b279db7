"""An outline of a spec says of another spec what the spec itself would."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from raysweep.errors import SpecError
from raysweep.specs import SweepSpec, TrainSpec
from raysweep.specs.changes import Changes, changes
from raysweep.specs.outline import MAX_CHARS, Outline, outline, outline_changes
from tests.sampling import examples
from tests.unit.specs.strategies import SPECS


def stored(spec: SweepSpec | TrainSpec) -> Outline:
    """As it comes back from a job's metadata."""
    found: Outline = orjson.loads(orjson.dumps(outline(spec)))
    return found


def fields_of(lines: tuple[str, ...]) -> set[str]:
    """The fields that lines name, without their parts."""
    return {line.split(" ")[0].rstrip(":").split(".")[0] for line in lines} - {"storage_path"}


def agree(old: SweepSpec, new: SweepSpec) -> Changes:
    """What the outlines say, which is what the specs say."""
    exact, found = changes(old, new), outline_changes(stored(old), stored(new))
    assert fields_of(found.unsafe) == fields_of(exact.unsafe)
    limits = {line for line in exact.safe if line.startswith(("num_samples", "stop.")) and "min_" not in line}
    assert set(found.safe) == limits
    return found


@settings(max_examples=examples(60), deadline=None)
@given(SPECS, SPECS, st.data())
def test_outlines_differ_as_their_specs_do(
    one: dict[str, Any], two: dict[str, Any], data: st.DataObject
) -> None:
    taken = data.draw(st.sets(st.sampled_from(sorted({*one, *two})), max_size=3))
    mixed = {name: (two if name in taken else one).get(name) for name in {*one, *two}}
    try:
        old, new = (SweepSpec(**{k: v for k, v in each.items() if v is not None}) for each in (one, mixed))
    except SpecError:
        assume(False)
    agree(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tpe", {"tpe": {"multivariate": True}}),
        ("tpe", {"tpe": {"multivariate": False}}),
        ({"tpe": {"multivariate": False}}, "tpe"),
        ({"tpe": {"multivariate": True}}, "tpe"),
        ("random", None),
        (None, "random"),
        (None, "tpe"),
        ("tpe", None),
        ("auto", None),
        (None, "auto"),
    ],
)
def test_what_a_search_leaves_open_is_no_difference(fields: dict[str, Any], old: Any, new: Any) -> None:
    made = [SweepSpec(**fields, **({"search": each} if each is not None else {})) for each in (old, new)]
    agree(*made)


def test_schedulers_without_options_are_told_apart(spec: SweepSpec) -> None:
    plain, own = spec.replace(scheduler="fifo"), spec.replace(scheduler="my.module:Mine")
    assert agree(plain, own).unsafe
    assert not agree(own, own)


def test_long_lists_of_configs_are_compared(spec: SweepSpec) -> None:
    lists = [[{"lr": n / 500} for n in range(1, count)] for count in (400, 500)]
    old, new = (spec.replace(search={"configs": {"configs": each}}, num_samples=None) for each in lists)
    assert agree(old, new).unsafe
    assert not agree(old, old)


def test_options_of_a_users_own_search_are_not_told(spec: SweepSpec) -> None:
    old, new = (spec.replace(search={"my.module:Search": {"key": key}}) for key in ("secret-1", "secret-2"))
    assert "secret" not in str(outline(old))
    assert agree(old, new).unsafe
    assert not agree(old, old)


def test_a_difference_is_named_as_far_as_it_is_known(spec: SweepSpec) -> None:
    other = spec.replace(trainable="other:g", num_samples=spec.num_samples + 1, mode="min")
    found = agree(spec, other)
    assert found.unsafe == ('trainable: "examples.flights:train" -> "other:g"', "mode differs")
    assert found.safe == (f"num_samples: {spec.num_samples} -> {other.num_samples}",)


def test_the_outline_of_a_large_spec_is_small(spec: SweepSpec) -> None:
    large = spec.replace(param_space={f"parameter-{n}": {"uniform": [0, n]} for n in range(1, 2000)})
    assert len(orjson.dumps(outline(large))) < MAX_CHARS
    assert agree(spec, large).unsafe == agree(large, spec).unsafe == ("param_space differs",)
    assert not agree(large, large)


def test_of_a_training_all_but_its_failures_and_limits_counts() -> None:
    old = TrainSpec(trainable="m:f", config={"lr": 0.1}, storage_path="/a")
    free = old.replace(
        failure={"max_failures": 5}, tags={"a": "b"}, stop={"time_budget_s": 3}, storage_path="/b"
    )
    assert not outline_changes(stored(old), stored(free))
    other = old.replace(config={"lr": 0.2}, scaling={"num_workers": 2})
    lines = outline_changes(stored(old), stored(other)).unsafe
    assert lines == ("config.lr differs", "scaling.num_workers differs")
