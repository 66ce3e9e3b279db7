"""A report as it goes over the link: a row of JSON values under its keys, of a bounded size."""

from __future__ import annotations

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


class RowMaker:
    """What a trial's reports need beyond plain values; `keys` are those of the report before."""

    def __init__(self) -> None:
        self.keys: tuple[str, ...] = ()
        self.is_odd = False
        """Whether the row being made has a value that is not plain."""
        self._keys_bytes = 0

    def set_keys(self, keys: tuple[str, ...]) -> None:
        """The metrics have other names from now on.

        Raises:
            RaysweepError: They are no names, or they alone are too large.
        """
        self._keys_bytes = _measure_keys(keys)
        self.keys = tuple(map(str.__str__, keys))  # NumPy's strings are others

    def convert(self, name: str, value: Any) -> Any:
        """A value that is not plain, as JSON. Raises: RaysweepError: it is none."""
        self.is_odd = True
        return to_json(name, value)

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
        to_json(plain, plain)
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


def to_json(name: str, value: Any) -> Any:
    """The value as JSON; non-finite numbers as the strings `NaN`, `Infinity`, `-Infinity`."""
    item = getattr(value, "item", None)
    if callable(item) and is_scalar(value):
        value = item()
    if isinstance(value, float):
        if isfinite(value):
            return float(value)
        return ("Infinity" if value > 0 else "-Infinity") if isinf(value) else "NaN"
    try:
        if isinstance(value, int) and not MIN_INT <= value <= MAX_INT:
            return float(value)
        return orjson.loads(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY))
    except (TypeError, OverflowError) as error:
        raise RaysweepError(
            f"metric {name!r} is of type {type(value).__name__}, which JSON cannot hold ({error});"
            " report numbers, strings, or lists of them"
        ) from error


def is_scalar(value: Any) -> bool:
    """Whether it is a number, one of numpy or torch too, not an array or a tensor of several."""
    return getattr(value, "ndim", 0) == 0
