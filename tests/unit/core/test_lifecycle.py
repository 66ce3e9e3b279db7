"""The lifecycle table: complete, without dead ends, and as its documentation says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import raysweep.core
from raysweep.core.vocabulary import lifecycle
from raysweep.core.vocabulary.lifecycle import FINAL, ON_SLOT, TABLE, Cause, TrialState, advance

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
    """But where a person wants more: what was cut short, what failed, what is to go further."""
    assert [row for row in TABLE if row[0] in FINAL] == [
        ("cancelled", "brought"),
        ("failed", "again"),
        ("completed", "extended"),
        ("stopped", "extended"),
    ]
    wanted = {"brought", "again", "extended"}
    assert {before for before, cause in TABLE if cause not in wanted} == STATES - FINAL
    assert FINAL.isdisjoint(ON_SLOT)


def test_every_cause_is_used() -> None:
    assert {cause for _, cause in TABLE} == CAUSES


CORE = Path(raysweep.core.__file__).parent
# What else has a `state`, and is no trial: the loop has the state of its sweep.
HOLDERS = {("loop.py", "self.state")}


def attributes_set_in(tree: ast.AST) -> Iterator[ast.Attribute]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node


def calls_in(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func).rpartition(".")[2], node


def movers_in(path: Path) -> list[str]:
    """The places in a file that set the state of something, by whatever way there is."""
    tree = ast.parse(path.read_text())
    stored = [
        ast.unparse(node)
        for node in attributes_set_in(tree)
        if node.attr == "state" and (path.name, ast.unparse(node)) not in HOLDERS
    ]
    for name, call in calls_in(tree):
        is_setter = name in ("setattr", "__setattr__", "delattr", "vars")
        keywords = {keyword.arg for keyword in call.keywords}
        if is_setter or (name in ("replace", "Trial") and "state" in keywords):
            stored.append(ast.unparse(call))
    return stored


def test_one_function_moves_trials() -> None:
    """The table is the law: nothing in the core sets the state of a trial but `transitions.move`.

    `state/sweep.py` sets the fields of a sweep's state by name when it restores a snapshot,
    `state/trial_rows.py` makes the trials of one, and `state/frozen.py` makes a copy for an estimate.
    """
    files = sorted(CORE.rglob("*.py"))
    found = {path.name: movers_in(path) for path in files}
    (restored,) = found.pop("trial_rows.py")
    assert restored.startswith("Trial(number=row.number, state=cast(TrialState, intern(row.state)), ")
    assert {name: places for name, places in found.items() if places} == {
        "transitions.py": ["trial.state"],
        "sweep.py": ["setattr(state, name, reader.validate_python(plain[name]))"],
        "frozen.py": ["setattr(made, name, reader.validate_python(plain[name]))"],
    }


@pytest.mark.parametrize(
    "line",
    [
        "trial.state = 'pending'",
        "trial.state, trial.slot = 'queued', 3",
        "(a, [trial.state, *b]) = c",
        "trial.state: str = 'x'",
        "state.trials[3].state = 'failed'",
        "for trial.state in names: pass",
        "with x as trial.state: pass",
        "setattr(trial, 'state', 'pending')",
        "object.__setattr__(trial, 'state', 'pending')",
        "replace(trial, state='pending')",
        "Trial(number=1, config={}, state='failed')",
    ],
)
def test_any_other_mover_would_be_found(line: str, tmp_path: Path) -> None:
    path = tmp_path / "more.py"
    path.write_text(line)
    assert len(movers_in(path)) == 1


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
