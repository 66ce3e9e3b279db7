"""Who a sweep is: its id from name and key, and the digest of its spec."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import Any

import orjson

from raysweep.errors import SpecError
from raysweep.spec.validation import Problem, show

SLUG_CHARACTERS = 40


def slug(name: str) -> str:
    """The name in at most 40 of `a-z0-9-`, with no dash at either end; may be empty."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:SLUG_CHARACTERS].strip("-")


def check_name(name: str) -> str:
    """The name, if an id can be made from it. Raises Problem."""
    if not slug(name):
        problem = "is empty" if not name.strip() else f"{show(name)} has no ASCII letter or digit"
        raise Problem(problem, 'give a name such as "flights"')
    if not name.isprintable():
        raise Problem(f"{show(name)} has control characters", f'give a name such as "{slug(name)}"')
    return name


def sweep_id(name: str, key: str) -> str:
    """The id of the sweep of this name under this key: `slug-0123456789`.

    The same name and key always give the same id. The slug has at most 40 characters; the 10 hex digits are
    blake2b of the key. Raises SpecError for a name without a letter or digit.
    """
    if not slug(name):
        raise SpecError("name", f"{show(name)} has no ASCII letter or digit", 'give a name such as "flights"')
    # A key from outside may hold lone surrogates; they must not make the id fail.
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=5).hexdigest()
    return f"{slug(name)}-{digest}"


def default_key(digest: str) -> str:
    """The key of a run that was given none: the same spec, told by its digest, is the same sweep."""
    return f"spec-{digest[:16]}"


def canonical_json(value: Any) -> bytes:
    """JSON bytes with sorted keys and no spaces: equal values give equal bytes."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def digest_of(value: Any) -> str:
    """32 hex digits of blake2b over the canonical JSON."""
    return hashlib.blake2b(canonical_json(value), digest_size=16).hexdigest()
