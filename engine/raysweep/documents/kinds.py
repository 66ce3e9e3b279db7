"""Fields that name a kind and, if wanted, its options: `"tpe"` or `{"tpe": {"multivariate": true}}`.

A kind with a colon in it is a class of the user's own: `"my_package.policies:Mine"`. Nothing here imports it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar, Self

from pydantic import ConfigDict, GetJsonSchemaHandler, ValidationError, model_serializer, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from raysweep.documents.base import SpecModel
from raysweep.documents.code.entry_points import find_class, sources
from raysweep.documents.code.trainable import PYTHON_ONLY, check_reference, trainable_ref
from raysweep.documents.json_values import plain
from raysweep.documents.validation import Problem, did_you_mean, issues_of, show

CLASS_EXAMPLE = "package.module:Class"


def load_kinds(registry: Mapping[str, str]) -> dict[str, type[Any]]:
    """The option class of each kind.

    Args:
        registry: for each kind `module:Class`; the modules are imported.
    """
    places = {kind: place.split(":") for kind, place in registry.items()}
    return {kind: getattr(import_module(module), name) for kind, (module, name) in places.items()}


class PluginOptions(SpecModel):
    """Options of a class of the user's own, which checks them itself when it is imported."""

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="before")
    @classmethod
    def _copy(cls, given: Any) -> Any:
        return plain(given)


class KindSpec(SpecModel):
    """A kind and its typed options; the first of `kinds` is the default."""

    kinds: ClassVar[Mapping[str, type[SpecModel]]] = {}
    plugin_options: ClassVar[type[PluginOptions]] = PluginOptions
    field: ClassVar[str] = ""
    """The field of a spec whose entry points name further kinds; empty: none do."""
    former: ClassVar[Mapping[str, str]] = {}
    """Kinds that there were, and what to write instead."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        return cls._parse(given)

    @classmethod
    def _parse(cls, given: Any) -> Any:
        """Read a document as the fields of this."""
        if isinstance(given, str | type):
            return cls._fields(given, {})
        if not isinstance(given, Mapping):
            raise Problem(f"expected one of {', '.join(cls.kinds)}, got {show(given)}", cls._example())
        if "kind" in given:
            extra = [key for key in given if key not in ("kind", "options")]
            if extra:
                raise Problem(f"unknown field {extra[0]!r}", cls._example(), (str(extra[0]),))
            return cls._fields(given["kind"], given.get("options", {}))
        if not given:
            return cls._left_open()
        if len(given) != 1:
            raise Problem(f"expected one kind, got {show(sorted(map(str, given)))}", cls._example())
        return cls._fields(*next(iter(given.items())))

    @classmethod
    def _left_open(cls) -> dict[str, Any]:
        return cls._fields(next(iter(cls.kinds)), {})

    @classmethod
    def _example(cls) -> str:
        name = next(iter(cls.kinds))
        return f'write "{name}" or {{"{name}": {{...}}}}'

    @classmethod
    def _fields(cls, kind: Any, options: Any) -> dict[str, Any]:
        kind = _class_path(kind) if isinstance(kind, type) else kind
        if isinstance(kind, str) and ":" not in kind and kind not in cls.kinds:
            kind = find_class(cls.field, kind) or kind
        model: type[SpecModel]
        if isinstance(kind, str) and ":" in kind:
            kind, model = check_reference(kind, CLASS_EXAMPLE), cls.plugin_options
        elif isinstance(kind, str) and kind in cls.kinds:
            model = cls.kinds[kind]
        else:
            known = [*cls.kinds, *(each.name for each in sources(cls.field)), CLASS_EXAMPLE]
            fix = cls.former.get(str(kind)) or did_you_mean(str(kind), known)
            raise Problem(f"{show(kind)} is not known here", fix)
        if options is None:
            options = {}
        if isinstance(options, model):
            return {"kind": kind, "options": options}
        if not isinstance(options, Mapping):
            raise Problem(f"expected a mapping of options, got {show(options)}", "write {...}", (kind,))
        try:
            return {"kind": kind, "options": model.__pydantic_validator__.validate_python(dict(options))}
        except ValidationError as error:
            raise Problem.of(issues_of(error, model), (kind,)) from None

    @property
    def is_plugin(self) -> bool:
        """True if the kind is a class of the user's own."""
        return isinstance(self.__dict__["options"], PluginOptions)

    @model_serializer(mode="plain")
    def _write(self) -> dict[str, Any]:
        fields = self.__dict__
        options: SpecModel = fields["options"]
        return {str(fields["kind"]): options.model_dump(mode="json")}

    @classmethod
    def of(cls, given: Any) -> Self:
        """From `"kind"` or `{"kind": {options}}`. Raises SpecError."""
        return cls.model_validate(given)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        plugin = {"type": "string", "pattern": _CLASS_PATTERN}
        forms: list[dict[str, Any]] = [
            {"enum": [*cls.kinds, *(each.name for each in sources(cls.field) if each.name not in cls.kinds)]},
            plugin,
            {"type": "object", "maxProperties": 0},
        ]
        for name, model in cls.kinds.items():
            own = model.__get_pydantic_json_schema__(model.__pydantic_core_schema__, handler)
            options: dict[str, Any] = {"anyOf": [own, {"type": "null"}]}
            forms.append({**_closed({name: options}), "required": [name]})
            forms.append({**_closed({"kind": {"const": name}, "options": options}), "required": ["kind"]})
        options = {"type": ["object", "null"]}
        named = {"patternProperties": {_CLASS_PATTERN: options}, "minProperties": 1, "maxProperties": 1}
        forms.append({**_closed({}), **named})
        forms.append({**_closed({"kind": plugin, "options": options}), "required": ["kind"]})
        return {"anyOf": forms, "description": (cls.__doc__ or "").strip().split("\n")[0]}


_CLASS_PATTERN = r"^[^\s:]+:[^\s:]+$"


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _class_path(given: type) -> str:
    """The import path of a class; one that has none could not be found again by a resume."""
    path = trainable_ref(given)
    if path.startswith(PYTHON_ONLY):
        raise Problem(
            f"the class {given.__qualname__!r} has no import path, by which a resume could find it",
            f'move it into a module, and name it "{CLASS_EXAMPLE}"',
        )
    return path
