"""Digests of plain JSON: equal values have equal ones."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson


def canonical_json(value: Any) -> bytes:
    """JSON bytes with sorted keys and no spaces: equal values give equal bytes."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def digest_of(value: Any) -> str:
    """32 hex digits of blake2b over the canonical JSON."""
    return hashlib.blake2b(canonical_json(value), digest_size=16).hexdigest()
