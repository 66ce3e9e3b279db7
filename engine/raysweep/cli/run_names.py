"""Accepts `--name` and `--key` wherever a command takes a sweep's id, and completes ids in the shell."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final, Optional

import typer

Command = Callable[..., Any]

_ID_HELP: Final = "An id, its beginning, or the folder's URI."
_NAME: Final = Annotated[
    Optional[str],  # noqa: UP045  typer reads the annotation at run time
    typer.Option(
        "--name", metavar="NAME", help="In place of the id: the spec's name. Alone, where no other has it."
    ),
]
_KEY: Final = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--key", metavar="KEY", help="With --name: the key that the sweep was run with."),
]


def complete_sweep(ctx: typer.Context, incomplete: str) -> list[str]:
    """The ids that begin so, at --storage or the default path; none where they cannot be read."""
    from raysweep.errors import RaysweepError
    from raysweep.runs.folder import list_sweeps
    from raysweep.runs.reading.lookup import DEFAULT_STORAGE
    from raysweep.storage.objects.opening import open_store

    try:
        known = list_sweeps(open_store(ctx.params.get("storage") or DEFAULT_STORAGE))
    except (RaysweepError, OSError):
        return []
    return [name for name in known if name.startswith(incomplete)]


def by_name(function: Command) -> Command:
    """Let a command that takes a sweep as `name` take `--name` and `--key` in its place.

    One that shows training runs too has a parameter `training`, which is not on the command line: the id that
    a training run of this name and key has, or its beginning.
    """
    signature = inspect.signature(function, eval_str=True)
    parameters = dict(signature.parameters)
    training = parameters.pop("training", None)
    is_needed = parameters["name"].default is inspect.Parameter.empty
    argument = typer.Argument(
        metavar="SWEEP_ID",
        help=_ID_HELP if is_needed else f"{_ID_HELP} Default: list all sweeps.",
        autocompletion=complete_sweep,
        show_default=False,
    )
    new = {
        "name": Annotated[Optional[str], argument],  # noqa: UP045
        "run_name": _NAME,
        "run_key": _KEY,
    }

    @functools.wraps(function)
    def named(**given: Any) -> Any:
        run_name, run_key = given.pop("run_name"), given.pop("run_key")
        name = name_of(given["name"], run_name, run_key)
        if name is None and is_needed:
            raise _no_name()
        if training is not None and run_name is not None:
            given["training"] = _training_of(run_name, run_key)
        return function(**given | {"name": name})

    kind = inspect.Parameter.KEYWORD_ONLY
    added = {name: inspect.Parameter(name, kind, default=None, annotation=new[name]) for name in new}
    rest = {name: each.replace(kind=kind) for name, each in parameters.items() if name != "name"}
    merged = {"name": added.pop("name"), **rest, **added}
    named.__signature__ = signature.replace(parameters=list(merged.values()))  # type: ignore[attr-defined]
    named.__annotations__ = {name: each.annotation for name, each in merged.items()}
    return named


def name_of(name: str | None, run_name: str | None, run_key: str | None) -> str | None:
    """The id, or the beginning of one, that the command line names; None where it names none.

    Raises:
        SpecError: It names two, or half of one.
    """
    from raysweep.errors import SpecError
    from raysweep.specs.identity import id_beginning

    if run_name is None:
        if run_key is not None:
            raise SpecError("--key", "names no sweep by itself", "give --name too, or the id alone")
        return name
    if name is not None:
        raise SpecError("--name", f"there is an id as well, {name!r}", "give one of them")
    return id_beginning(run_name, run_key)


def _training_of(run_name: str, run_key: str | None) -> str:
    from raysweep.specs.identity import id_beginning

    return id_beginning(run_name, run_key, "train")


def _no_name() -> Exception:
    from raysweep.errors import SpecError

    fix = "give its id, its folder's URI, or --name and --key; `raysweep status` lists the sweeps"
    return SpecError("SWEEP_ID", "no sweep is named", fix)
