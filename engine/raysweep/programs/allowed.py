"""The allow-list of programs that a command may start (`RAYSWEEP_PROGRAMS`), beside `RAYSWEEP_TRAINABLES`.

Entries are separated by commas or white space: the first item of a command, as it is written there; `*`
stands for any characters (`/opt/models/*`). Not set, with `RAYSWEEP_TRAINABLES` set: no program may run, as
one could do what that list forbids. Neither set: any program. An interpreter in the list runs any script.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from raysweep.documents.code import allow_list
from raysweep.documents.placeholders import names_in
from raysweep.errors import TrainableImportError
from raysweep.specs.trial.program import commands_of

if TYPE_CHECKING:
    from raysweep.specs import SweepSpec, TrainSpec

VARIABLE: Final = "RAYSWEEP_PROGRAMS"
_NONE: Final = "<none>"


def listed() -> str:
    """The list of this process; `<none>` where trainables are limited and programs are not named."""
    given = os.environ.get(VARIABLE, "").strip()
    if given:
        return given
    return _NONE if allow_list.is_limited() else ""


def check_programs(spec: SweepSpec | TrainSpec, *, is_local: bool) -> None:
    """See, before anything starts, that the programs of a spec may run, and are there.

    Raises:
        TrainableImportError: One may not, or is not there.
    """
    assert spec.command is not None, "the spec has a command"
    for field, command in commands_of(spec.command, spec.program).items():
        check_program(command, field=field, is_local=is_local)


def check_program(command: Sequence[str], *, is_local: bool, field: str = "command") -> None:
    """See that the program of one command, which `field` of a spec says, may run, and is there.

    `is_local`: it runs on this machine, in the present folder.

    Raises:
        TrainableImportError: It may not, or it is not there.
    """
    check_allowed(command, listed(), field=field)
    program = command[0]
    if not is_local or names_in(program):
        return
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    if shutil.which(os.path.expanduser(program), path=path) is not None:
        return
    if os.path.isfile(program):
        is_bare = "/" not in program
        fix = f"write ./{program}" if is_bare else f"make it executable: chmod +x {program}"
        raise TrainableImportError(field, f"{program!r} cannot be run as a program", fix)
    where = f"in {os.getcwd()}" if "/" in program else "on PATH"
    raise TrainableImportError(
        field, f"there is no program {program!r} {where}", "install it, or fix its path"
    )


def check_allowed(command: Sequence[str], *lists: str, field: str = "command") -> None:
    """See that a command's program is in each of these lists that is not empty.

    Raises:
        TrainableImportError: It is not.
    """
    for given in lists:
        entries = [entry for entry in re.split(r"[,\s]+", given) if entry]
        if not entries or any(fnmatch.fnmatchcase(command[0], entry) for entry in entries):
            continue
        if given == _NONE:
            raise TrainableImportError(
                field,
                f"{allow_list.VARIABLE} is set and {VARIABLE} is not: no program may run",
                f"set {VARIABLE}={command[0]} where this runs, or use a trainable",
            )
        raise TrainableImportError(
            field,
            f"{command[0]!r} is not among the programs that {VARIABLE} allows here ({', '.join(entries)})",
            f"use one of these, or add {command[0]} to {VARIABLE} where this runs",
        )
