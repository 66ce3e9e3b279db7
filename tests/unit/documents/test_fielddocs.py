"""The strings under fields describe them: in JSON Schemas, and where an error says what is missing."""

from __future__ import annotations

import pytest
from pydantic import Field

from raysweep.documents.base import SpecModel
from raysweep.documents.field_docs import Described, description_of
from raysweep.errors import SpecError
from raysweep.specs import SweepSpec


class Base(Described):
    first: int
    """Of the base,

    with a second paragraph.
    """
    second: int
    """Said of the base alone."""
    third: int = Field(default=1, description="As it was given.")
    """Not this."""
    fourth: int = 0


class Derived(Base):
    second: int
    first_of_its_own: int = Field(default=1, alias="own")
    """By another name."""


def test_the_string_under_a_field_describes_it() -> None:
    assert description_of(Base, "first") == "Of the base,\n\nwith a second paragraph."
    assert description_of(Base, "third") == "As it was given."
    assert description_of(Base, "fourth") == description_of(Base, "no_field") == ""


def test_a_derived_model_has_what_it_does_not_declare_anew() -> None:
    assert description_of(Derived, "first").startswith("Of the base,")
    assert description_of(Derived, "second") == ""
    properties = Derived.model_json_schema()["properties"]
    assert properties["own"]["description"] == "By another name."
    assert properties["third"]["description"] == "As it was given."
    assert "description" not in properties["second"]


def test_a_model_whose_source_nobody_knows_has_none() -> None:
    space: dict[str, object] = {"SpecModel": SpecModel, "__name__": "nowhere"}
    exec("class Typed(SpecModel):\n    field: int\n    '''Said.'''\n", space)
    typed = space["Typed"]
    assert isinstance(typed, type)
    assert issubclass(typed, SpecModel)
    assert description_of(typed, "field") == ""
    assert typed.model_json_schema()["properties"]["field"]["type"] == "integer"


def test_the_schema_of_a_spec_describes_its_fields_and_those_of_its_options() -> None:
    schema = SweepSpec.json_schema()
    assert schema["properties"]["metric"]["description"]
    forms = schema["$defs"]["StoppingSpec"]["anyOf"]
    (asha,) = (
        form["properties"]["asha"]["anyOf"][0] for form in forms if "asha" in form.get("properties", {})
    )
    assert "rung" in asha["properties"]["reduction_factor"]["description"]


def test_an_error_says_what_a_missing_field_is() -> None:
    with pytest.raises(SpecError) as caught:
        SweepSpec.model_validate({"name": "n", "trainable": "m:f", "metric": "loss", "mode": "min"})
    assert "add it: " in str(caught.value)
