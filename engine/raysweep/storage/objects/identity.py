"""The identity of a store: an id in it (`store.json`), whatever its path is called on this machine.

A copy of a store has the id of the original.
"""

from __future__ import annotations

import secrets
from typing import Final

import orjson

from raysweep.errors import StorageError
from raysweep.storage.formats import other_format
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store

STORE_FILE: Final = "store.json"
FORMAT_VERSION: Final = 1


def mark_store(store: Store) -> None:
    """Give the store an id, unless it has one. Raises: StorageError."""
    if not store.exists(STORE_FILE):
        data = orjson.dumps({"format_version": FORMAT_VERSION, "id": secrets.token_hex(16)})
        store.put_if_absent(STORE_FILE, data, durable=True)


def unmark_if_empty(store: Store) -> None:
    """Take the id of a store back that has nothing in it: a spec that was refused leaves nothing behind.

    Raises: StorageError.
    """
    if not store.list_folders():
        store.delete(STORE_FILE)


def store_id(store: Store) -> str:
    """The store's id; empty where nothing has been stored in it, or the file is damaged.

    Raises: StorageError, also where the file has another format.
    """
    try:
        fields = orjson.loads(store.get(STORE_FILE) or b"{}")
    except orjson.JSONDecodeError:
        return ""
    if not isinstance(fields, dict) or not fields:
        return ""
    if fields.get("format_version") != FORMAT_VERSION:
        problem = other_format(fields.get("format_version"), FORMAT_VERSION, name="format_version")
        raise StorageError(f"{store.url}/{STORE_FILE}", problem, "use the version of raysweep that wrote it")
    found = fields.get("id")
    return found if isinstance(found, str) else ""


def is_same_store(one: str, other: str) -> bool:
    """True if two storage paths are names of one store; False where one cannot be read from here."""
    if one == other:
        return True
    try:
        first, second = open_store(one), open_store(other)
        return first.url == second.url or (bool(store_id(first)) and store_id(first) == store_id(second))
    except StorageError:
        return False
