"""Policies of the user's own: classes named by import path, imported by those who run a sweep.

Parsing a spec imports nothing of the user's, and neither does looking at a sweep that is stored: `load` does,
and only those who run, plan or verify a sweep call it. `make` knows the classes that were loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from raysweep.documents.code import user_code
from raysweep.documents.code.entry_points import source_of
from raysweep.documents.code.trainable import load_function
from raysweep.documents.kinds import CLASS_EXAMPLE
from raysweep.documents.validation import Issue, did_you_mean, issues_of, show, spec_error
from raysweep.errors import SpecError, one_line

PolicyT = TypeVar("PolicyT")


class NoOptions(BaseModel):
    """The options of a class that takes none."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Plugins(Generic[PolicyT]):
    """The classes of one field of the spec that this process has loaded.

    A class is called with its options (an instance of its `Options`, a pydantic model; `NoOptions` without
    one) and a setup that the field's own room defines.

    Args:
        field: the spec's field, `scheduler` or `search`.
        base: the class that each is a subclass of.
        room: where users import that class from.
        adapted: what stands before a class of another kind, which may be what is named.
        accepts: whether a class of another kind will do as it is.
        required: the methods of the base that a class must override.
    """

    def __init__(
        self,
        field: str,
        base: type,
        room: str,
        *,
        adapted: Callable[[type], type] = lambda found: found,
        accepts: Callable[[type], bool] = lambda found: False,
        required: tuple[str, ...] = (),
    ) -> None:
        self._field: Final = field
        self._base: Final = base
        self._room: Final = room
        self._adapted: Final = adapted
        self._accepts: Final = accepts
        self._required: Final = required
        self._loaded: dict[str, type] = {}

    def load(self, kind: str) -> type:
        """Import the class, and see that it is one for this field.

        Raises:
            SpecError: it cannot be imported, is not a subclass of the base, or lacks a method; names the fix.
        """
        found = self._import(kind)
        if not isinstance(found, type):
            what = f"{kind!r} is a {type(found).__name__}, not a class"
            raise SpecError(self._field, what, f'name a class: "{CLASS_EXAMPLE}"')
        found = self._adapted(found)
        self._check_base(kind, found)
        if not getattr(found, "resumable", True):
            raise SpecError(
                self._field,
                f"{kind!r} sets resumable = False: a killed sweep could not continue",
                f"make its state restorable and remove resumable = False; {self._suite_fix()}",
            )
        self._loaded[kind] = found
        return found

    def _import(self, kind: str) -> Any:
        try:
            return load_function(kind, self._field)
        except SpecError as error:
            source = source_of(self._field, kind)
            if source is None:
                raise
            problem = f"the entry point {source} cannot be loaded: {error.problem}"
            raise type(error)(self._field, problem, error.fix) from error

    def _check_base(self, kind: str, found: type) -> None:
        base = self._base
        if self._accepts(found):
            return
        if not issubclass(found, base):
            name = kind.rpartition(":")[2].rpartition(".")[2]
            fix = f"write class {name}({base.__name__}), with from {self._room} import {base.__name__}"
            problem = f"{kind!r} is not a subclass of {self._room}.{base.__name__}"
            raise SpecError(self._field, problem, fix)
        missing = [name for name in self._required if getattr(found, name) is getattr(base, name)]
        if missing:
            raise SpecError(self._field, f"{kind!r} has no {', '.join(missing)}", self._suite_fix())

    def make(self, kind: str, options: BaseModel, setup: object) -> PolicyT:
        """A policy of a class that was loaded.

        Raises:
            SpecError: the class was not loaded here, the options do not fit it, or it raised.
        """
        cls = self._loaded.get(kind)
        if cls is None:
            problem = f"{kind!r} is imported only where the sweep runs or is verified"
            raise SpecError(self._field, problem, "use `raysweep verify`, or run the sweep")
        checked = self._options(kind, cls, options.model_dump())
        try:
            return cast(PolicyT, user_code.call(cls, checked, setup))
        except SpecError:
            raise
        except Exception as error:
            raise self.failed(kind, "__init__", error) from error

    def check_options(self, kind: str, options: BaseModel) -> None:
        """See that the options fit a class that was loaded. Raises: SpecError."""
        self._options(kind, self._loaded[kind], options.model_dump())

    def failed(self, kind: str, method: str, error: Exception) -> SpecError:
        """The error for what a method of the user's class raised."""
        what = one_line(f"{type(error).__name__}: {error}", 200)
        return SpecError(self._field, f"{kind!r} failed in {method}: {what}", "fix the class, and run again")

    def wrong(self, kind: str, method: str, given: object, expected: str) -> SpecError:
        """The error for what a method of the user's class returned."""
        return SpecError(
            self._field, f"{method} of {kind!r} gave {show(given)}, not {expected}", self._suite_fix()
        )

    def _options(self, kind: str, cls: type, given: dict[str, Any]) -> BaseModel:
        model: type[BaseModel] = getattr(cls, "Options", NoOptions)
        if not issubclass(model, BaseModel):
            raise SpecError(self._field, f"{kind}.Options is {show(model)}", "make it a pydantic model")
        under = (self._field, kind)
        known = {name for key, field in model.model_fields.items() for name in (key, field.alias) if name}
        if model.model_config.get("extra") != "allow":
            for name in given:
                if name not in known:
                    fix = did_you_mean(name, known) if known else f"leave it out: {kind} takes no options"
                    raise spec_error([Issue((*under, name), f"unknown field {name!r}", fix)])
        try:
            return cast(BaseModel, model.__pydantic_validator__.validate_python(given))
        except ValidationError as error:
            issues = issues_of(error, model)
            raise spec_error([Issue((*under, *i.path), i.problem, i.fix) for i in issues]) from None

    def _suite_fix(self) -> str:
        suite = "SchedulerContract" if self._field == "scheduler" else "SearcherContract"
        return f"raysweep.testing has a suite that checks the class: {suite}"
