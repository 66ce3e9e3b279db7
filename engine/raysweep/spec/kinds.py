"""Fields that name a kind and, if wanted, its options: `"tpe"` or `{"tpe": {"multivariate": true}}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import GetJsonSchemaHandler, ValidationError, model_serializer, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from raysweep.spec.base import SpecModel
from raysweep.spec.validation import Problem, did_you_mean, issues_of, show


class KindSpec(SpecModel):
    """A kind and its typed options; the first of `kinds` is the default."""

    kinds: ClassVar[dict[str, type[SpecModel]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        if isinstance(given, str):
            return cls._fields(given, {})
        if not isinstance(given, Mapping):
            raise Problem(f"expected one of {', '.join(cls.kinds)}, got {show(given)}", cls._example())
        if "kind" in given:
            extra = [key for key in given if key not in ("kind", "options")]
            if extra:
                raise Problem(f"unknown field {extra[0]!r}", cls._example(), (str(extra[0]),))
            return cls._fields(given["kind"], given.get("options", {}))
        if not given:
            return cls._fields(next(iter(cls.kinds)), {})
        if len(given) != 1:
            raise Problem(f"expected one kind, got {show(sorted(map(str, given)))}", cls._example())
        return cls._fields(*next(iter(given.items())))

    @classmethod
    def _example(cls) -> str:
        name = next(iter(cls.kinds))
        return f'write "{name}" or {{"{name}": {{...}}}}'

    @classmethod
    def _fields(cls, kind: Any, options: Any) -> dict[str, Any]:
        if not isinstance(kind, str) or kind not in cls.kinds:
            raise Problem(f"{show(kind)} is not known here", did_you_mean(str(kind), cls.kinds))
        model = cls.kinds[kind]
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
        forms: list[dict[str, Any]] = [{"enum": list(cls.kinds)}, {"type": "object", "maxProperties": 0}]
        for name, model in cls.kinds.items():
            options = {"anyOf": [handler(model.__pydantic_core_schema__), {"type": "null"}]}
            forms.append(
                {
                    "type": "object",
                    "properties": {name: options},
                    "required": [name],
                    "additionalProperties": False,
                }
            )
            written = {"kind": {"const": name}, "options": options}
            forms.append(
                {"type": "object", "properties": written, "required": ["kind"], "additionalProperties": False}
            )
        return {"anyOf": forms, "description": (cls.__doc__ or "").strip().split("\n")[0]}
