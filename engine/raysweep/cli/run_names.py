"""Accepts `--name` and `--key` wherever a command takes a sweep's id, and completes ids in the shell."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final, Optional

import typer

Command = Callable[..., Any]

ID_HELP: Final = "NAME@latest, NAME@DATE, NAME@KEY, an id, its beginning, or the folder's URI."
_NAME: Final = Annotated[
    Optional[str],  # noqa: UP045  typer reads the annotation at run time
    typer.Option(
        "--name", metavar="NAME", help="In place of NAME@KEY: the spec's name; alone, where one sweep has it."
    ),
]
_KEY: Final = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--key", metavar="KEY", help="With --name: the key that the sweep was run with."),
]


def complete_sweep(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names and ids that begin so, at --storage or the default path; none where they cannot be read."""
    from raysweep.errors import RaysweepError
    from raysweep.runs.folder import list_sweeps
    from raysweep.runs.reading.naming.lookup import DEFAULT_STORAGE
    from raysweep.storage.objects.opening import open_store

    try:
        known = list_sweeps(open_store(ctx.params.get("storage") or DEFAULT_STORAGE))
    except (RaysweepError, OSError):
        return []
    stems = dict.fromkeys(name.rpartition("-")[0] for name in known)
    named = (name for stem in stems for name in (f"{stem}@latest",))
    return [name for name in (*named, *known) if name.startswith(incomplete)]


def complete_name(ctx: typer.Context, incomplete: str) -> list[str]:
    """The slugs of names that begin so, at --storage or the default path."""
    ids = (name for name in complete_sweep(ctx, "") if "@" not in name)
    return [
        stem for stem in dict.fromkeys(each.rpartition("-")[0] for each in ids) if stem.startswith(incomplete)
    ]


def by_name(function: Command) -> Command:
    """Let a command that takes a sweep as `name` take `--name` and `--key` in its place.

    Two parameters are not on the command line: `training`, of a command that shows training runs too, is what
    names a training run of this name and key; `only` is `--name` where it stands without `--key`.
    """
    signature = inspect.signature(function, eval_str=True)
    parameters = dict(signature.parameters)
    training, only = parameters.pop("training", None), parameters.pop("only", None)
    is_needed = parameters["name"].default is inspect.Parameter.empty
    argument = typer.Argument(
        metavar="SWEEP",
        help=ID_HELP if is_needed else f"{ID_HELP} Default: list all nights.",
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
        if only is not None and run_key is None:
            given["only"] = run_name
        return function(**given | {"name": name})

    kind = inspect.Parameter.KEYWORD_ONLY
    added = {name: inspect.Parameter(name, kind, default=None, annotation=new[name]) for name in new}
    rest = {name: each.replace(kind=kind) for name, each in parameters.items() if name != "name"}
    merged = {"name": added.pop("name"), **rest, **added}
    named.__signature__ = signature.replace(parameters=list(merged.values()))  # type: ignore[attr-defined]
    named.__annotations__ = {name: each.annotation for name, each in merged.items()}
    return named


def name_of(name: str | None, run_name: str | None, run_key: str | None) -> str | None:
    """The id or the name on the command line; None where it names none.

    Raises:
        SpecError: It names two, or half of one.
    """
    from raysweep.errors import SpecError
    from raysweep.specs.identity import id_beginning, slug

    if run_name is None:
        if run_key is not None:
            raise SpecError("--key", "names no sweep by itself", "give --name too, or the id alone")
        return name
    if name is not None:
        raise SpecError("--name", f"there is an id as well, {name!r}", "give one of them")
    whole = id_beginning(run_name, run_key)
    return whole if run_key is not None else slug(run_name)


def _training_of(run_name: str, run_key: str | None) -> str:
    from raysweep.specs.identity import slug

    # By its key, or by that of the night whose sweep it was handed on by.
    return slug(run_name) if run_key is None else f"{slug(run_name)}@{run_key}"


def _no_name() -> Exception:
    from raysweep.errors import SpecError

    fix = "give NAME@latest, an id, its folder's URI, or --name and --key; `raysweep status` lists the sweeps"
    return SpecError("SWEEP", "no sweep is named", fix)
