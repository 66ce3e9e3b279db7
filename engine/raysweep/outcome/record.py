"""The base of all records, and the error in one."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final, Self

import orjson
from pydantic import (
    AfterValidator,
    ConfigDict,
    ValidationError,
)

from raysweep.documents.field_docs import Described
from raysweep.documents.validation import issues_of, spec_error
from raysweep.errors import SpecError, one_line
from raysweep.outcome.showing.text import short_repr

TRACEBACK_CHARACTERS = 4096
_FRAME: Final = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.MULTILINE)


@contextmanager
def without_collector() -> Iterator[None]:
    """While records are made of many trials, all of which stay, the collector does not run.

    That would take a third of the time.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class Record(Described):
    """Frozen, and open for fields of later versions, which are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())

    def __repr__(self) -> str:
        return short_repr(self)

    def __str__(self) -> str:
        return repr(self)

    def to_json(self) -> str:
        """As JSON text on one line."""
        with without_collector():
            return orjson.dumps(self.model_dump(mode="json")).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """From JSON text. Raises SpecError for what is none of this kind."""
        try:
            with without_collector():
                return cls.from_fields(orjson.loads(text))
        except orjson.JSONDecodeError as error:
            raise SpecError(
                cls.__name__, f"not valid JSON: {error}", "read it from where it was written"
            ) from None

    @classmethod
    def from_fields(cls, fields: Any) -> Self:
        """A record from parsed JSON. Raises SpecError for data that are none of this kind."""
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise spec_error(issues_of(error, cls), cls.__name__) from None


class ErrorInfo(Record):
    """An error as data."""

    kind: str
    """The class of failure, such as `user_error` or `worker_died`."""
    type: str = ""
    """The name of the exception's class."""
    message: str = ""
    """The exception's text."""
    traceback: Annotated[str | None, AfterValidator(lambda text: text and text[:TRACEBACK_CHARACTERS])] = None
    """The first 4 KiB of the traceback."""
    traceback_uri: str | None = None
    """The address of the whole traceback."""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.type, self.message) if part)

    @property
    def where(self) -> str:
        """`train.py:12 in fit`: the innermost line of user code in the traceback; empty without one.

        User code is what was not installed; where there is none in it, the innermost line of a library.
        """
        # Of a chain, the last part is of what was raised in the end; one that is cut may lack it.
        last = (self.traceback or "").rpartition("Traceback (most recent call last):")[2]
        frames = _FRAME.findall(last)
        own = [frame for frame in frames if not _is_installed(frame[0])]
        others = [frame for frame in frames if not any(part in frame[0] for part in _RAYSWEEP)]
        file, line, function = (own or others or [("", "", "")])[-1]
        return f"{file}:{line} in {function}" if file else ""

    @property
    def line(self) -> str:
        """`ValueError: bad rate`: the type and the first line of the message."""
        first = (self.message.strip().splitlines() or [""])[0]
        return one_line(str(self.model_copy(update={"message": first})))


def _is_installed(file: str) -> bool:
    return file.startswith("<frozen") or any(part in file for part in _INSTALLED)


# What surrounds user code, installed or not.
_RAYSWEEP: Final = ("/raysweep/worker/", "/raysweep/trial/", "/raysweep/programs/")
_INSTALLED: Final = ("/site-packages/", "/dist-packages/", "/lib/python3", *_RAYSWEEP)
