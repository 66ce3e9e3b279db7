"""The base of all parts of a spec: frozen, closed, strictly typed, and wrong in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from raysweep.documents.field_docs import Described
from raysweep.documents.json_values import unwrap_number
from raysweep.documents.synonyms import synonyms_of, with_own_names
from raysweep.documents.validation import Counts, issues_of, spec_error

if TYPE_CHECKING:
    _Model = Described
else:

    class _RaisesSpecError(type(BaseModel)):
        """Turns the ValidationError of `Model(...)` into a SpecError.

        On the metaclass and not in `__init__`: pydantic calls a model's own `__init__` for nested models too,
        and the path to the field would be lost there.
        """

        def __call__(cls, /, *args: Any, **fields: Any) -> Any:
            try:
                return super().__call__(*args, **fields)
            except ValidationError as error:
                raise spec_error(issues_of(error, cls)) from None

    class _Model(Described, metaclass=_RaisesSpecError):
        pass


class SpecModel(_Model):
    """A frozen part of a spec. All invalid input raises `SpecError`."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        # Strict, so that "5" is not 5 in Python and an error in the JSON Schema.
        strict=True,
        allow_inf_nan=False,
        protected_namespaces=(),
    )

    renamed_fields: ClassVar[dict[str, str]] = {}
    """Names that users know from elsewhere, and the fields to use instead; `synonyms` are accepted."""
    former_fields: ClassVar[dict[str, str]] = {}
    """Options that there were, and what to do instead."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        """Read what a class is given, in place of this: it sees the spec's own names alone."""
        return given

    @model_validator(mode="before")
    @classmethod
    def _take_numpy_numbers(cls, given: Any) -> Any:
        if isinstance(given, Mapping):
            return {key: unwrap_number(value) for key, value in given.items()}
        return given

    # The last of these runs first; one that a class overrides keeps its place.
    @model_validator(mode="before")
    @classmethod
    def _take_synonyms(cls, given: Any) -> Any:
        words = synonyms_of(cls)
        return with_own_names(given, words) if words else given

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """A spec from a mapping. Raises SpecError."""
        try:
            return super().model_validate(obj, **options)
        except ValidationError as error:
            raise spec_error(issues_of(error, cls)) from None

    @classmethod
    def check_known(cls, obj: Any, counts: Counts) -> None:
        """See that a mapping whose other parts come later is valid as far as it is known.

        Args:
            obj: The mapping.
            counts: Which problems count.

        Raises: SpecError.
        """
        try:
            super().model_validate(obj)
        except ValidationError as error:
            if issues := issues_of(error, cls, counts):
                raise spec_error(issues) from None

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, validated as a whole (`model_copy` does not validate)."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**{**fields, **changes})
