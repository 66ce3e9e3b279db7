"""Checks of how parameters are named to a program: that they stay apart, and take no name that it needs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from raysweep.documents.placeholders import names_in
from raysweep.documents.validation import Problem, show
from raysweep.documents.variable_names import is_needed, variable_of
from raysweep.specs.trial.program import ProgramSpec, is_named

_ARGUMENTS: Final = ("program", "arguments")
_ID: Final = r"[A-Za-z_][A-Za-z0-9_-]*"
_SPECIAL: Final = r"[A-Za-z_$][A-Za-z0-9_$-]*"
_PART: Final = rf"(?:{_SPECIAL}|0|[1-9](?:_?[0-9])*)"
_PACKAGE: Final = rf"(?:{_SPECIAL}|{_PART}(?:\.{_PART})+)"
_HYDRA_KEY: Final = re.compile(rf"(?:\+\+?|~)?(?:{_ID}(?:/{_ID})+|{_PACKAGE})(?:@{_PACKAGE}?)?")
"""A key of hydra's overrides, `+db/model@pkg`, as its grammar has it."""


def is_hydra_key(path: str) -> bool:
    """True if hydra reads a parameter's path as a key."""
    return _HYDRA_KEY.fullmatch(path) is not None


def check_names(command: Sequence[str], program: ProgramSpec, paths: Sequence[str]) -> None:
    """See that each of the parameters reaches the program by a name of its own. Raises Problem."""
    twice = next((path for path, count in Counter(paths).items() if count > 1), None)
    if twice is not None:
        raise Problem(f"two parameters have the path {twice}", "rename one of them", ("command",))
    if program.arguments == "environment":
        used = {name for _, text in program.templates(command) for name in names_in(text)}
        _check_variables(program, paths, used)
    if program.arguments == "hydra":
        unreadable = next((path for path in paths if not is_hydra_key(path)), None)
        if unreadable is not None:
            what = f"hydra cannot read the parameter {show(unreadable)} as a key"
            raise Problem(what, "rename it, or choose another style", _ARGUMENTS)


def _check_variables(program: ProgramSpec, paths: Sequence[str], used: Collection[str]) -> None:
    owner: dict[str, str] = {}
    for path in paths:
        variable = variable_of(path)
        if is_needed(variable):
            if not is_named(path, used):
                fix = f'rename it, or name its variable: environment: {{RUN_{variable}: "{{{path}}}"}}'
                what = f"the parameter {path} would replace the variable {variable}, which programs need"
                raise Problem(what, fix, _ARGUMENTS)
        elif (other := owner.setdefault(variable, path)) != path:
            what = f"the parameters {other} and {path} are one variable, {variable}"
            raise Problem(what, "rename one of them", _ARGUMENTS)
    _check_replaced(("program", "environment"), program.environment, owner)
    if program.service is not None:
        _check_replaced(("program", "service", "environment"), program.service.environment, owner)


def _check_replaced(field: tuple[str, ...], environment: dict[str, str], owner: dict[str, str]) -> None:
    for variable, text in environment.items():
        path = owner.get(variable)
        if path is not None and path not in names_in(text):
            fix = f"rename one of them, or write {{{path}}} in the value"
            raise Problem(f"replaces the variable of the parameter {path}", fix, (*field, variable))
