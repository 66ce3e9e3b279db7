"""A report as it goes over the link: a row of JSON values under its keys, of a bounded size."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from math import isfinite, isinf
from typing import Any, Final

import orjson

from raysweep.errors import RaysweepError
from raysweep.worker.wire import encode

# Far below what one frame may hold: the frame that a report lies in can always be read.
MAX_ROW_BYTES: Final = 16 * 2**20
# The longest of JSON's numbers, and its comma: what a plain value takes at most.
PLAIN_BYTES: Final = 25
# Of these, and of finite floats and integers in this range, nothing has to be looked at.
PLAIN_TYPES: Final = frozenset({bool, type(None)})
MIN_INT: Final = -(2**63)
MAX_INT: Final = 2**64 - 1
MAX_FLOAT: Final = int(sys.float_info.max)
MAX_TEXT_CHARS: Final = 1000
"""The characters that are kept of the `repr` of a value that JSON cannot hold."""
MAX_DEPTH: Final = 20
"""Values that are nested deeper are kept as text."""


class RowMaker:
    """The conversion of a trial's reports beyond plain values; `keys` are those of the report before."""

    def __init__(self) -> None:
        self.keys: tuple[str, ...] = ()
        self.is_odd = False
        """True if the row being made has a value that is not plain."""
        self.as_text: dict[str, str] = {}
        """Metrics that were kept as text, each with the type that JSON cannot hold."""
        self._keys_bytes = 0

    def set_keys(self, keys: tuple[str, ...]) -> None:
        """The metrics have other names from now on.

        Raises:
            RaysweepError: They are no names, or they alone are too large.
        """
        self._keys_bytes = _measure_keys(keys)
        self.keys = tuple(map(str.__str__, keys))  # NumPy's strings are others

    def convert(self, name: str, value: Any) -> Any:
        """A value that is not plain, as JSON holds it; see `as_json`."""
        self.is_odd = True
        found, odd = as_json(value)
        if odd:
            self.as_text.setdefault(name, odd)
        return found

    def pack(self, row: list[Any]) -> bytes:
        """The row with such values as one JSON array.

        Raises:
            RaysweepError: It is too large.
        """
        self.is_odd = False
        packed = encode(row)
        if self._keys_bytes + len(packed) > MAX_ROW_BYTES:
            pairs = zip(self.keys, row, strict=True)
            raise _refusal(self.keys, [len(encode(pair)) for pair in pairs])
        return packed


def _refusal(keys: tuple[str, ...], sizes: list[int]) -> RaysweepError:
    largest = max(range(len(keys)), key=sizes.__getitem__)
    return RaysweepError(
        f"report() takes up to {_mebibytes(MAX_ROW_BYTES)} as JSON; these {len(keys)} metrics take"
        f" {_mebibytes(sum(sizes))}, of which metric {_shown(keys[largest])} takes"
        f" {_mebibytes(sizes[largest])}: report a summary, and store what is that large in a checkpoint"
    )


def _mebibytes(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.1f} MiB"


def _shown(name: str) -> str:
    return repr(name if len(name) <= 100 else name[:100] + "…")


# The next trial most likely has the same.
@lru_cache(maxsize=1)
def _measure_keys(keys: tuple[str, ...]) -> int:
    sizes = []
    for name in keys:
        if not isinstance(name, str):
            raise RaysweepError(
                f"report() takes metrics named by strings; {name!r} is a {type(name).__name__}"
            )
        plain = str.__str__(name)
        if _valid(plain) != plain:
            raise RaysweepError(f"report() takes metrics named by valid Unicode text; {plain!r} is not")
        sizes.append(len(encode(plain)) + 1)
    if sum(sizes) + PLAIN_BYTES * len(keys) > MAX_ROW_BYTES:
        raise _refusal(keys, [size_bytes + PLAIN_BYTES for size_bytes in sizes])
    return sum(sizes)


def with_nested(metrics: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The metrics, with those of these names that lie in mappings: `eval/acc` of `{"eval": {"acc": 1}}`."""
    found = {name: _inside(metrics, name) for name in names if name not in metrics}
    return metrics | {name: value for name, value in found.items() if value is not None}


def _inside(metrics: Any, name: str) -> Any:
    for part in name.split("/"):
        metrics = metrics.get(part) if isinstance(metrics, dict) else None
    return metrics


def to_json(value: Any) -> Any:
    """The value as JSON holds it; see `as_json`, which also says what was kept as text."""
    return as_json(value)[0]


def as_json(value: Any) -> tuple[Any, str]:
    """The value as JSON holds it. Never fails: a value that JSON cannot hold becomes text.

    | value | becomes |
    |---|---|
    | NaN, infinity | the strings `NaN`, `Infinity`, `-Infinity` |
    | scalars and arrays of NumPy and PyTorch | numbers and nested lists |
    | an integer beyond 64 bits | a float |
    | tuple, set | a list |
    | keys of a mapping that are no strings | their text |
    | all else (bytes, objects) | their `repr`, at most 1,000 characters |

    Returns:
        The JSON, and the type of the first part that was kept as its `repr` ("": none was).
    """
    if type(value) is float and isfinite(value):  # most metrics
        return value, ""
    try:
        item = getattr(value, "item", None)
        if callable(item) and is_scalar(value):
            value = item()
        if isinstance(value, float):
            if isfinite(value):
                return float(value), ""
            return ("Infinity" if value > 0 else "-Infinity") if isinf(value) else "NaN", ""
        if isinstance(value, int) and not MIN_INT <= value <= MAX_INT:
            return float(value), ""
        return orjson.loads(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)), ""
    except Exception:  # noqa: BLE001  the value is the user's, and so is what its methods raise
        odd: list[str] = []
        return _parts_as_json(value, odd, MAX_DEPTH), odd[0] if odd else ""


def _parts_as_json(value: Any, odd: list[str], depth: int) -> Any:
    try:
        if isinstance(value, Mapping) and depth:
            pairs = [(_key(key), _parts_as_json(item, odd, depth - 1)) for key, item in value.items()]
            return dict(pairs)
        if isinstance(value, list | tuple | set | frozenset) and depth:
            return [_parts_as_json(item, odd, depth - 1) for item in value]
        as_list = getattr(value, "tolist", None)
        if callable(as_list) and depth and getattr(value, "nbytes", 0) <= MAX_ROW_BYTES:
            return _parts_as_json(as_list(), odd, depth - 1)
        return orjson.loads(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY))
    except Exception:  # noqa: BLE001  as above
        if isinstance(value, int) and abs(value) < MAX_FLOAT:
            return float(value)
        odd.append(type(value).__name__)
        return _text(value)


def _key(key: Any) -> str:
    return _valid(key) if isinstance(key, str) else _text(key)


def _text(value: Any) -> str:
    """Its `repr`, cut; a string as it is."""
    try:
        text = value if isinstance(value, str) else repr(value)
        return _valid(text if len(text) <= MAX_TEXT_CHARS else f"{text[:MAX_TEXT_CHARS]}…")
    except Exception as error:  # noqa: BLE001  as above
        return f"<{type(value).__name__}: its repr raised {type(error).__name__}>"


def _valid(text: str) -> str:
    return str(text).encode(errors="backslashreplace").decode()


def is_scalar(value: Any) -> bool:
    """True if it is a number, one of numpy or torch too, not an array or a tensor of several."""
    return getattr(value, "ndim", 0) == 0
