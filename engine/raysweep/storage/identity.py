"""Which store it is: by an id in it, whatever its path is called on this machine."""

from __future__ import annotations

import secrets
from typing import Final

import orjson

from raysweep.storage.store import Store

STORE_FILE: Final = "store.json"
FORMAT_VERSION: Final = 1


def mark_store(store: Store) -> str:
    """Give the store an id, unless it has one; its id. Raises: StorageError."""
    data = orjson.dumps({"format_version": FORMAT_VERSION, "id": secrets.token_hex(16)})
    store.put_if_absent(STORE_FILE, data, durable=True)
    return store_id(store)


def store_id(store: Store) -> str:
    """The store's id; empty where nothing has been stored in it, or the file is damaged.

    Raises: StorageError.
    """
    try:
        fields = orjson.loads(store.get(STORE_FILE) or b"{}")
    except orjson.JSONDecodeError:
        return ""
    found = fields.get("id") if isinstance(fields, dict) else None
    return found if isinstance(found, str) else ""


def is_same_store(one: Store, other: Store) -> bool:
    """Whether both are one store, under two names perhaps. Raises: StorageError."""
    return one.url == other.url or (bool(found := store_id(one)) and found == store_id(other))
