"""Names and values of a report, of kinds that are not plain."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import numpy as np
import pytest

from raysweep.errors import RaysweepError, message_of
from raysweep.worker.rows import RowMaker


class Name(StrEnum):
    LOSS = "loss"


@pytest.mark.parametrize("name", [np.str_("loss"), Name.LOSS, "loss"])
def test_names_of_other_kinds_of_strings_are_names(name: str) -> None:
    rows = RowMaker()
    rows.set_keys((name,))
    assert rows.keys == ("loss",)
    assert type(rows.keys[0]) is str


@pytest.mark.parametrize(
    ("name", "text"), [(7, "named by strings; 7 is a int"), ("\ud800", "of type str, which JSON cannot hold")]
)
def test_what_is_no_name_is_refused(name: Any, text: str) -> None:
    with pytest.raises(RaysweepError, match=text):
        RowMaker().set_keys((name,))


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), ValueError("inner")])
def test_an_error_is_asked_what_it_says_at_no_risk(raised: BaseException) -> None:
    class SpeechlessError(Exception):
        def __str__(self) -> str:
            raise raised

    assert message_of(SpeechlessError()) == "<exception str() failed>"
    assert message_of(ValueError("said")) == "said"
