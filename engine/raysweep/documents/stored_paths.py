"""References: places in a store, written relative to a base.

A base is a sweep's folder or a storage path. A relative reference stays valid after the store is moved or
opened under another name. Readers get absolute URIs.
"""

from __future__ import annotations

import posixpath
from typing import Final

HERE: Final = "."


def to_reference(base: str, uri: str) -> str:
    """A URI relative to `base`, `.` for `base` itself; one that lies elsewhere as it is."""
    if not base or not uri:
        return uri
    if uri == base:
        return HERE
    prefix = f"{base.rstrip('/')}/"
    return uri[len(prefix) :] if uri.startswith(prefix) else uri


def to_uri(base: str, reference: str) -> str:
    """The URI that a reference stands for below `base`; an absolute one stays as it is."""
    if reference == HERE:
        return base
    if not base or not reference or is_absolute(reference):
        return reference
    return f"{base.rstrip('/')}/{reference}"


def checkpoint_in(uri: str) -> str:
    """The reference within its store, `<run>/checkpoints/<trial>/<n>`, of a checkpoint's URI; else empty.

    A person's URI may name the store as it was called then, or as it is called elsewhere: what comes below
    tells which checkpoint it is, as the id of the run has its name and key in it.
    """
    text = uri.rstrip("/") if "://" in uri else posixpath.normpath(uri)
    parts = text.split("/")[-4:]
    is_one = len(parts) == 4 and parts[1] == "checkpoints" and parts[3].isdecimal() and parts[0]
    return "/".join(parts) if is_one else ""


def is_absolute(reference: str) -> bool:
    """True if it is a URI, or a path from the root or from a home folder."""
    return "://" in reference or reference.startswith(("/", "~"))
