"""Opens the store that a `storage_path` names, under the plan of faults that this process has."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from raysweep import faultplan
from raysweep.errors import StorageNotWritableError
from raysweep.faultplan import ActivePlan
from raysweep.storage.objects.store import Store
from raysweep.storage.objects.wrapped import Operation, WrappedStore

REMOTE_SCHEMES: Final = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "memory")
T = TypeVar("T")


def open_store(storage_path: str | os.PathLike[str]) -> Store:
    """Open the store that a spec's `storage_path` names. Touches nothing yet: see `Store.check_writable`.

    Takes a local path (`~` is expanded), `file://`, `s3://`, `gs://`, `az://` or `memory://name`.
    S3 options (credentials, region, AWS_ENDPOINT_URL) come from the environment.

    Raises: StorageNotWritableError for a path that names no store.
    """
    store = _open(os.fspath(storage_path))
    plan = faultplan.current()
    if plan is None:
        return store
    return FaultyStore(store, plan)


def _open(text: str) -> Store:
    scheme, separator, rest = text.partition("://")
    if not separator:
        return _open_local(text)
    if scheme == "file":
        return _open_local(rest)
    if scheme in REMOTE_SCHEMES:
        from raysweep.storage.objects.remote import RemoteStore

        return RemoteStore(text)
    raise StorageNotWritableError(
        "storage_path",
        f"{text!r} has the unknown scheme {scheme!r}",
        "use a local path, file://, s3://, gs://, az:// or memory://",
    )


def _open_local(text: str) -> Store:
    from raysweep.storage.objects.local import LocalStore

    if not text or "\0" in text:
        raise StorageNotWritableError(
            "storage_path", f"{text!r} is not a path", "name a folder, such as ~/raysweep"
        )
    return LocalStore(Path(os.path.abspath(os.path.expanduser(text))))


class FaultyStore(WrappedStore):
    """A store under a plan of faults: slow, failing, or deadly to its user, where the plan says so.

    Each operation comes by the plan before and after. Pickled, it is opened again, under that process's plan.
    """

    def __init__(self, inner: Store, plan: ActivePlan) -> None:
        super().__init__(inner)
        self._plan = plan

    def around(self, operation: Operation, key: str, call: Callable[[], T]) -> T:
        """See the class."""
        self._plan.reach_store(operation, key, "before")
        result = call()
        self._plan.reach_store(operation, key, "after")
        return result

    def __reduce__(self) -> tuple[Callable[[str], Store], tuple[str]]:
        return open_store, (self.url,)
