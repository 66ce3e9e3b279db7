"""Small JSON objects that carry the hash of their own content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import orjson

FORMAT_VERSION = 1
_DIGEST_BYTES = 20
_BODY = b',"body":'
_SEAL = b',"blake2b":"'


def encode_sealed(body: Mapping[str, Any]) -> bytes:
    """`{"format":1,"blake2b":"...","body":{...}}`; the hash is of the body's bytes."""
    return seal_parts([orjson.dumps(body)])


def seal_parts(parts: Sequence[bytes]) -> bytes:
    """As `encode_sealed`, of a body that is JSON text already."""
    hashed = blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        hashed.update(part)
    head = orjson.dumps({"format": FORMAT_VERSION, "blake2b": hashed.hexdigest()})
    return b"".join((head[:-1], _BODY, *parts, b"}"))


def decode_sealed(data: bytes) -> dict[str, Any] | None:
    """The body, or None if a byte of it is not as it was written, or it has another format."""
    start = sealed_start(data)
    if start is None:
        return None
    body: dict[str, Any] = orjson.loads(memoryview(data)[start:-1])
    return body


def sealed_start(data: bytes) -> int | None:
    """The start of the body that `decode_sealed` gives, as JSON text; it ends before the last byte."""
    begin = data.find(_BODY)
    if begin < 0 or not data.endswith(b"}"):
        return None
    try:
        fields = orjson.loads(data[:begin] + b"}")
    except orjson.JSONDecodeError:
        return None
    start = begin + len(_BODY)
    is_sound = fields.get("format") == FORMAT_VERSION
    return start if is_sound and fields.get("blake2b") == digest(memoryview(data)[start:-1]) else None


def seal(data: bytes) -> bytes:
    """A JSON object with the hash of its bytes as one more field at its end, for objects that others read."""
    return b"".join((data[:-1], _SEAL, digest(data).encode(), b'"}'))


def seal_open(parts: Sequence[bytes | memoryview]) -> bytes:
    """As `seal`, of an object in parts without its closing brace."""
    hashed = blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        hashed.update(part)
    hashed.update(b"}")
    return b"".join((*parts, _SEAL, hashed.hexdigest().encode(), b'"}'))


def sealed_end(data: bytes) -> int | None:
    """The start of the seal of an object that has a seal and is as it was written; else None.

    What is before it lacks the closing brace. Nothing is copied: for large objects.
    """
    end = data.rfind(_SEAL)
    if end <= 0:
        return None
    hashed = blake2b(memoryview(data)[:end], digest_size=_DIGEST_BYTES)
    hashed.update(b"}")
    return end if data[end + len(_SEAL) :] == hashed.hexdigest().encode() + b'"}' else None


def unseal(data: bytes) -> bytes | None:
    """The bytes given to `seal`, or None if one of them changed. Data without a seal pass unchecked."""
    head, _, rest = data.rpartition(_SEAL)
    whole = head + b"}"
    if head and rest == digest(whole).encode() + b'"}':
        return whole
    # The objects that are sealed end with a number or an object before the seal: a string was one.
    return None if data.endswith(b'"}') else data


def has_seal(data: bytes) -> bool:
    """True if `seal` made it, and no byte of it has changed since."""
    return sealed_end(data) is not None


def digest(data: bytes | memoryview) -> str:
    """Hex blake2b of 20 bytes."""
    return blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()
