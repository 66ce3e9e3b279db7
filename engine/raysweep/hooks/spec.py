"""The field `callbacks` of a spec: names of trackers, classes by import path, and in Python objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field

from raysweep.documents.code.trainable import PYTHON_ONLY
from raysweep.documents.kinds import CLASS_EXAMPLE, KindSpec, load_kinds
from raysweep.documents.validation import Problem, show
from raysweep.hooks.base import Callback, CallbackOptions, CallbackPluginOptions
from raysweep.hooks.events import HOOKS
from raysweep.hooks.registry import KINDS

MASK: Final = "***"


class CallbackSpec(KindSpec):
    """One callback: `webhook`, `tensorboard`, `mlflow`, …, or `module:Class`, with its options."""

    kinds: ClassVar[Mapping[str, type[CallbackOptions]]] = load_kinds(KINDS)
    plugin_options = CallbackPluginOptions
    field = "callbacks"

    kind: str
    """The tracker, or the import path of a class."""
    options: CallbackOptions | CallbackPluginOptions
    """Its options."""
    held: Any = Field(default=None, exclude=True, repr=False)
    """The object itself, where one was given in Python."""

    @classmethod
    def _parse(cls, given: Any) -> Any:
        if is_callback(given):
            kind = type(given)
            name = f"{PYTHON_ONLY} {kind.__module__}:{kind.__qualname__}"
            return {"kind": name, "options": CallbackPluginOptions(), "held": given}
        if isinstance(given, Mapping) and given.get("held") is not None:
            return given
        if _looks_like_one(given):
            base = f"{type(given).__name__} is not a subclass of raysweep.hooks.Callback"
            raise Problem(base, "make it one, with from raysweep.hooks import Callback")
        return super()._parse(given)

    @classmethod
    def _left_open(cls) -> dict[str, Any]:
        raise Problem("names no callback", f'write "{next(iter(cls.kinds))}" or "{CLASS_EXAMPLE}"')

    def stored(self) -> dict[str, Any]:
        """As JSON for the storage: secrets are masked."""
        options: dict[str, Any] = self.options.model_dump(mode="json")
        for name in getattr(self.options, "secret_fields", ()):
            if options.get(name):
                options[name] = masked(options[name])
        return {self.kind: options}


def with_masked(fields: dict[str, Any], callbacks: Sequence[CallbackSpec]) -> dict[str, Any]:
    """The fields of a spec, for the storage: the secrets of its callbacks are masked."""
    return fields | ({"callbacks": [each.stored() for each in callbacks]} if callbacks else {})


def is_callback(given: object) -> bool:
    """True if it is an object of raysweep's `Callback`, or of Ray Tune's."""
    if isinstance(given, type | str | Mapping | KindSpec):
        return False
    return isinstance(given, Callback) or is_tune_callback(given)


def _looks_like_one(given: object) -> bool:
    """True if it is an object with a method of a callback, whatever its class."""
    has_hook = any(callable(getattr(given, name, None)) for name in HOOKS.values())
    return is_callback(given) or (has_hook and not isinstance(given, type))


def is_tune_callback(given: object) -> bool:
    """True if it is an object of Ray Tune's `Callback`. Imports no Ray."""
    kind = given if isinstance(given, type) else type(given)
    return any(
        base.__name__ == "Callback" and base.__module__ == "ray.tune.callback" for base in kind.__mro__
    )


def masked(url: str) -> str:
    """An address without what may be secret: only scheme and host are left."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}/{MASK}"


def _listed(given: Any) -> Any:
    if given is None:
        return ()
    if isinstance(given, Iterable) and not isinstance(given, str | Mapping):
        return tuple(given)
    if isinstance(given, str | type | Mapping | CallbackSpec) or _looks_like_one(given):
        return (given,)
    raise Problem(f"expected a list of callbacks, got {show(given)}", f'write ["mlflow", "{CLASS_EXAMPLE}"]')


Callbacks = Annotated[
    tuple[CallbackSpec, ...],
    BeforeValidator(_listed, json_schema_input_type=tuple[CallbackSpec, ...] | CallbackSpec | None),
]
