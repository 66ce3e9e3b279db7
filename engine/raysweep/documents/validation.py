"""From pydantic's list of problems to one line that names the field and the fix."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from raysweep.documents.field_docs import description_of
from raysweep.errors import SpecError

Path = tuple[str | int, ...]
Counts = Callable[[Path, bool], bool]
"""True if a problem at a path counts; the bool: that nothing is there. `()` is the whole."""
WHOLE: Final = "spec"
"""The field of a SpecError about all of what was given."""


@dataclass(frozen=True, slots=True)
class Issue:
    """One problem at one path of a spec."""

    path: Path
    problem: str
    fix: str = ""


class Problem(ValueError):
    """The exception of this package's validators: issues whose paths start at the field being validated."""

    def __init__(self, problem: str, fix: str = "", path: Path = ()) -> None:
        super().__init__(problem)
        self.issues: tuple[Issue, ...] = (Issue(path, problem, fix),)

    @classmethod
    def of(cls, issues: Sequence[Issue], under: Path = ()) -> Problem:
        """Several issues as one exception, their paths put below `under`."""
        made = cls(issues[0].problem)
        made.issues = tuple(Issue(under + issue.path, issue.problem, issue.fix) for issue in issues)
        return made


def show(value: object, limit: int = 80) -> str:
    """A value as one short line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def dotted(path: Iterable[str | int]) -> str:
    """A path as the user would write it: `resources.bundles[0].CPU`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else part)
    return text


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` was most likely meant to be, or None."""
    folded = {name.casefold().replace("-", "_"): name for name in known}
    wanted = word.casefold().replace("-", "_").strip()
    if wanted in folded:
        return folded[wanted]
    close = difflib.get_close_matches(wanted, folded, n=1, cutoff=0.6)
    if close:
        return folded[close[0]]
    starts = [
        name for key, name in folded.items() if key and (wanted.startswith(key) or key.startswith(wanted))
    ]
    return starts[0] if wanted and len(starts) == 1 else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean 'x'?`, or the list of what is known."""
    names = list(known)
    close = nearest(word, names)
    return f"did you mean {close!r}?" if close else f"use one of {', '.join(map(repr, names))}"


def spec_error(issues: Sequence[Issue], where: str = "") -> SpecError:
    """The first issue as a SpecError, the rest as its `others`. `where` names the input, such as a file."""
    lines = [SpecError(dotted(i.path) or where or WHOLE, i.problem, i.fix) for i in issues]
    first = lines[0]
    first.others = tuple(str(line) for line in lines[1:])
    return first


def issues_of(
    error: ValidationError, model: type[BaseModel], counts: Counts = lambda path, is_missing: True
) -> list[Issue]:
    """The problems of a ValidationError, in the words of this package; only those of paths that count."""
    found: list[Issue] = []
    items = error.errors(include_url=False)
    for item in (each for each in items if counts(each["loc"], each["type"] == "missing")):
        # pydantic ends with it the place of a key that is wrong; a field may have that name, too.
        is_of_key = item["loc"][-1:] == ("[key]",) and item["type"] != "extra_forbidden"
        path: Path = item["loc"][:-1] if is_of_key else item["loc"]
        cause = item.get("ctx", {}).get("error")
        if isinstance(cause, Problem):
            found += [Issue(path + i.path, i.problem, i.fix) for i in cause.issues]
        elif isinstance(cause, SpecError):
            inner = path if cause.field in ("", WHOLE) else (*path, cause.field)
            found.append(Issue(inner, cause.problem, cause.fix))
        else:
            found.append(_issue(dict(item), path, model))
    return found


def nested_models(annotation: Any) -> list[type[BaseModel]]:
    """The models named in an annotation such as `Resources | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if _is_annotated(annotation):
        return nested_models(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return [model for part in typing.get_args(annotation) for model in nested_models(part)]
    return []


def _model_at(model: type[BaseModel], path: Path) -> type[BaseModel]:
    parts = iter(path)
    for part in parts:
        field = model.model_fields.get(str(part))
        annotation = field.annotation if field else None
        if typing.get_origin(annotation) is dict:  # of models by a name that is the user's
            next(parts, None)
            annotation = typing.get_args(annotation)[1]
        below = nested_models(annotation)
        if not below:
            return model
        model = below[0]
    return model


def _paths_to(model: type[BaseModel], name: str, under: str = "") -> list[str]:
    """The paths below this model to fields of that name."""
    found: list[str] = []
    for field_name, field in model.model_fields.items():
        for below in nested_models(field.annotation):
            prefix = f"{under}{field_name}."
            if name in below.model_fields:
                found.append(prefix + name)
            found += _paths_to(below, name, prefix)
    return found


def unknown_field(model: type[BaseModel], path: Path) -> Issue:
    """The issue for a field that the model at this path does not have."""
    name = str(path[-1])
    renamed = getattr(model, "renamed_fields", {}).get(name)
    if renamed is None:
        elsewhere = _paths_to(model, name)
        renamed = elsewhere[0] if len(elsewhere) == 1 else None
    fix = f"did you mean {renamed!r}?" if renamed else did_you_mean(name, model.model_fields)
    fix = getattr(model, "former_fields", {}).get(name, fix)
    return Issue(path, f"unknown field {name!r}", fix)


_BOUNDS = {"greater_than": ("gt", ">"), "greater_than_equal": ("ge", ">="), "less_than": ("lt", "<")}
_BOUNDS["less_than_equal"] = ("le", "<=")
_WANTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "a string",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "mapping_type": "a mapping",
    "tuple_type": "a list",
    "list_type": "a list",
    "finite_number": "a finite number",
}


def _issue(item: dict[str, Any], path: Path, model: type[BaseModel]) -> Issue:
    kind, given, ctx = item["type"], item.get("input"), item.get("ctx", {})
    if kind == "missing":
        about = description_of(_model_at(model, path[:-1]), str(path[-1])).split("\n")[0].rstrip(".")
        return Issue(path, "is required", f"add it: {about}" if about else "add it")
    if kind == "extra_forbidden":
        return unknown_field(_model_at(model, path[:-1]), path)
    if kind == "literal_error":
        known = _literals(model, path)
        return Issue(path, f"{show(given)} is not known here", did_you_mean(str(given), known))
    if kind in _BOUNDS:
        key, sign = _BOUNDS[kind]
        bound = f"{sign} {float(ctx[key]):.17g}"
        return Issue(path, f"must be {bound}, got {show(given)}", f"give a number {bound}")
    if kind == "string_too_short":
        return Issue(path, "must not be empty", "give it a value")
    if kind in _WANTED:
        return Issue(path, f"expected {_WANTED[kind]}, got {show(given)}", _retyped(kind, given))
    return Issue(path, f"{item['msg']}, got {show(given)}")


def _literals(model: type[BaseModel], path: Path) -> list[str]:
    field = _model_at(model, path[:-1]).model_fields.get(str(path[-1]))
    annotation = field.annotation if field else None
    found: list[str] = []
    parts = (annotation, *typing.get_args(annotation))
    for part in (*parts, *(typing.get_args(each)[0] for each in parts if _is_annotated(each))):
        if typing.get_origin(part) is typing.Literal:
            found += [str(value) for value in typing.get_args(part)]
    return found


def _is_annotated(annotation: Any) -> bool:
    return typing.get_origin(annotation) is typing.Annotated


def _retyped(kind: str, given: object) -> str:
    """The fix for a value of the wrong type."""
    if isinstance(given, str) and kind in ("int_type", "float_type"):
        try:
            float(given)
        except ValueError:
            return "write a number"
        return f"write {given.strip()} without quotes"
    if kind == "string_type" and isinstance(given, int | float):
        return f'write "{given}" in quotes'
    return f"write {_WANTED[kind]}"
