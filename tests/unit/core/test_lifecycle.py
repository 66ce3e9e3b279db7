"""The lifecycle table: complete, without dead ends, and as its documentation says."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from raysweep.core import lifecycle
from raysweep.core.lifecycle import FINAL, ON_SLOT, TABLE, Cause, TrialState, advance

STATES = set(get_args(TrialState))
CAUSES = set(get_args(Cause))


def reachable(start: TrialState) -> set[TrialState]:
    found: set[TrialState] = {start}
    while True:
        more = {after for (before, _), after in TABLE.items() if before in found} - found
        if not more:
            return found
        found |= more


def test_every_state_can_be_reached() -> None:
    assert reachable("pending") == STATES


@pytest.mark.parametrize("state", sorted(STATES - FINAL))
def test_every_state_leads_to_every_end(state: TrialState) -> None:
    """No dead ends: whatever a trial goes through, it can still complete, stop, fail or be cancelled."""
    assert reachable(state) >= FINAL


def test_final_states_are_final() -> None:
    assert {before for before, _ in TABLE} == STATES - FINAL
    assert FINAL.isdisjoint(ON_SLOT)


def test_every_cause_is_used() -> None:
    assert {cause for _, cause in TABLE} == CAUSES


def test_what_is_not_in_the_table_is_refused() -> None:
    with pytest.raises(KeyError):
        advance("completed", "assigned")
    assert advance("running", "returned") == "completed"


def test_the_documented_table_is_the_table() -> None:
    """The docstring shows one row for each pair of states, with its causes in the table's order."""
    rows: dict[tuple[str, str], list[str]] = {}
    for (before, cause), after in TABLE.items():
        rows.setdefault((before, after), []).append(cause)
    expected = [f"| {before} | {after} | {', '.join(causes)} |" for (before, after), causes in rows.items()]
    shown = re.findall(r"^\| .* \|$", lifecycle.__doc__ or "", re.MULTILINE)
    assert shown[1:] == expected
