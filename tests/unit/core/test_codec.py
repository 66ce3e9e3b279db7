"""Events to JSON and back, for every event that there is; and what is refused."""

from __future__ import annotations

from dataclasses import MISSING, fields, replace
from typing import Any, get_args, get_type_hints

import hypothesis.strategies as st
import orjson
import pytest
from hypothesis import given
from pydantic import JsonValue

from raysweep.core import decode, encode
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers(-(2**63), 2**64 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
st.register_type_strategy(str, TEXT)
CLASSES: tuple[type[Any], ...] = get_args(ev.Event)


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """What a field of this type can hold."""
    if hint is float:
        return FLOATS
    if hint == float | None:
        return st.none() | FLOATS
    if hint is int:
        return st.integers(0, 2**53)
    if hint == dict[str, JsonValue]:
        return st.dictionaries(TEXT, JSON, max_size=3)
    if hint == list[JsonValue]:
        return st.lists(JSON, max_size=3)
    if getattr(hint, "__origin__", None) is tuple and hint.__args__[-1] is not Ellipsis:
        return st.tuples(*map(values_of, hint.__args__))
    if getattr(hint, "__origin__", None) is tuple:
        return st.lists(values_of(hint.__args__[0]), max_size=3).map(tuple)
    if hint is Failure:
        return st.builds(Failure, origin=st.sampled_from(["exception", "node", "start"]))
    if hint is ev.FailedConfig:
        return st.builds(ev.FailedConfig, number=NUMBERS, failure=values_of(Failure))
    return st.from_type(hint)


def events_of(cls: type[Any]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(cls)
    known = {"behaviour": st.just(ev.BEHAVIOUR)}
    return st.builds(
        cls, **{each.name: known.get(each.name, values_of(hints[each.name])) for each in fields(cls)}
    )


@pytest.mark.parametrize("cls", CLASSES)
def test_round_trip(cls: type[Any]) -> None:
    """The same event, field by field, and the same bytes again."""

    @given(event=events_of(cls))
    def check(event: Any) -> None:
        line = encode(event)
        assert b"\n" not in line
        assert orjson.loads(line)["e"] == cls.__name__
        again = decode(line)
        assert type(again) is cls
        assert again == event
        assert encode(again) == line
        assert {name: type(getattr(again, name)) for name in cls.__slots__} == {
            name: type(getattr(event, name)) for name in cls.__slots__
        }

    check()


SAMPLES = {
    "at": 1.0,
    "failure": {"origin": "node"},
    "keys": ["a"],
    "rows": [[1]],
    "configs": [{"a": 1}],
    "spec": {},
    "trials": [1],
    "uri": "mem://0/0",
    "problem": "disk full",
    "text": "no place",
    "node": "ab12",
}


@pytest.mark.parametrize("cls", CLASSES)
def test_fields_with_defaults_may_be_missing(cls: type[Any]) -> None:
    """But for the behaviour, which each controller names."""
    required = [field for field in fields(cls) if field.default is MISSING]
    record = {field.name: SAMPLES.get(field.name, 1) for field in required}
    if cls is ev.ControllerStarted:
        record["behaviour"] = ev.BEHAVIOUR
    event = decode(orjson.dumps({"e": cls.__name__, **record}))
    assert type(event) is cls
    for field in fields(cls):
        assert field in required or getattr(event, field.name) == field.default


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (
            b'{"e":"TrialPromoted","at":1.0}',
            "'TrialPromoted' is not an event known to this version of raysweep",
        ),
        (b'{"at":1.0}', "None is not an event"),
        (b'{"e":["TrialStarted"],"at":1.0}', "is not an event"),
        (b"[1]", "an event is a JSON object, not a list"),
        (b'{"e":"TrialStarted","at":1.0,"trial":3}', "event TrialStarted does not fit: .*attempt"),
        (b'{"e":"TrialStarted","at":1,"trial":3,"attempt":1,"color":2}', "event TrialStarted does not fit"),
        (b'{"e":"CapacityChanged","at":1.0,"slots":"many"}', "event CapacityChanged does not fit"),
        (b'{"e":"TrialReported","at":1,"trial":1,"attempt":1,"first":0,"keys":1,"rows":[]}', "are lists"),
        (b'{"e":"TrialReported","at":1,"trial":1,"attempt":1,"first":0,"keys":[]}', "does not fit"),
        (b'{"e":"SlotLost","at":1,"slot":1,"failure":{"origin":"weather"}}', "event SlotLost does not fit"),
        (b'{"e":"TrialSta', "unexpected end of data|EOF"),
    ],
)
def test_what_is_no_event_is_refused(line: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        decode(line)


def test_a_slot_on_one_node_is_written_as_before_there_were_gangs() -> None:
    alone = ev.SlotOpened(at=1.0, slot=2, node="n")
    assert encode(alone) == b'{"e":"SlotOpened","at":1.0,"slot":2,"node":"n"}'
    assert decode(encode(alone)) == alone
    spread = ev.SlotOpened(at=1.0, slot=2, node="n", others=("a", "b"))
    assert decode(encode(spread)) == spread


def test_a_note_about_the_room_is_written_only_where_there_is_one() -> None:
    plain = ev.CapacityChanged(at=1.0, slots=8)
    assert b"note" not in encode(plain)
    for event in (plain, replace(plain, note="8 trials share each GPU"), replace(plain, beyond=("gpu=2",))):
        assert decode(encode(event)) == event
