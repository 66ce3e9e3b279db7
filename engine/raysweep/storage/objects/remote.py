"""Stores behind obstore: S3 and its look-alikes, Google Cloud Storage, Azure, and memory for tests.

obstore runs its requests on a thread pool that does not survive a fork: a forked child would wait for ever.
So a child of a process that has used a remote store is refused with an error instead.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raysweep.errors import RaysweepError, StorageError, StorageNotWritableError, StorageUnavailableError
from raysweep.storage.objects.refusals import refusal_of
from raysweep.storage.objects.store import ObjectInfo, check_key

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import MemoryStore, ObjectStore

REQUEST_TIMEOUT_S = 30.0
"""For one request; large objects go in parts of 5 MiB, each a request."""

_PUT_PART_BYTES = 8 * 1024 * 1024
_memory: dict[str, MemoryStore] = {}
_memory_lock = threading.Lock()
_user_pid: int | None = None


class RemoteStore:
    """An object store behind obstore.

    `url` is `scheme://bucket/prefix`; `memory://name` is shared in the process.
    """

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._prefix, self._store = _open(url)

    def __reduce__(self) -> tuple[type[RemoteStore], tuple[str]]:
        return RemoteStore, (self.url,)

    @property
    def url(self) -> str:
        return self._url

    def local_path(self, key: str) -> Path | None:
        return None

    def get(self, key: str) -> bytes | None:
        import obstore

        with self._errors(key):
            try:
                return bytes(obstore.get(self._store, self._key(key)).bytes())
            except FileNotFoundError:
                return None

    def get_chunks(self, key: str) -> Iterator[bytes] | None:
        import obstore

        with self._errors(key):
            try:
                result = obstore.get(self._store, self._key(key))
            except FileNotFoundError:
                return None

        def chunks() -> Iterator[bytes]:
            with self._errors(key):
                for chunk in result.stream(min_chunk_size=1024 * 1024):
                    yield bytes(chunk)

        return chunks()

    def put(self, key: str, data: bytes | memoryview, *, durable: bool = False) -> None:
        import obstore

        with self._errors(key):
            obstore.put(self._store, self._key(key), data)

    def sync(self, *keys: str) -> None:
        """A put that was answered is durable."""

    def put_if_absent(self, key: str, data: bytes, *, durable: bool = False) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with self._errors(key):
            try:
                # Multipart uploads cannot be conditional everywhere; segments are far below the limit of one
                # put.
                obstore.put(self._store, self._key(key), data, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError) as error:
                # 412: it exists. S3 says 409 of a request that met another one under way: that may have
                # failed since, and one must try again. Other stores say 409 where S3 says 412: look.
                if not self.exists(key):
                    raise StorageUnavailableError(
                        f"{self._url}/{key}",
                        refusal_of(error).problem,
                        "try again: another request was under way",
                    ) from error
                return False
        return True

    def get_versioned(self, key: str) -> tuple[bytes, str] | None:
        import obstore

        with self._errors(key):
            try:
                result = obstore.get(self._store, self._key(key))
            except FileNotFoundError:
                return None
            data = bytes(result.bytes())
            # Stores have one of the two, S3 with versioning both; a put takes what a get gave.
            return data, f"{result.meta['e_tag'] or ''} {result.meta['version'] or ''}"

    def put_if_version(self, key: str, data: bytes, version: str | None) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError, NotModifiedError, PreconditionError

        if version is None:
            return self.put_if_absent(key, data, durable=True)
        names = zip(("e_tag", "version"), version.split(" "), strict=True)
        mode: Any = {name: value for name, value in names if value}
        with self._errors(key):
            try:
                obstore.put(self._store, self._key(key), data, mode=mode, use_multipart=False)
            except (AlreadyExistsError, PreconditionError, NotModifiedError, FileNotFoundError):
                return False
        return True

    def put_chunks(self, key: str, chunks: Iterable[bytes], *, durable: bool = False) -> None:
        import obstore

        with self._errors(key):
            obstore.put(self._store, self._key(key), chunks, chunk_size=_PUT_PART_BYTES, max_concurrency=4)

    def delete(self, *keys: str) -> None:
        import obstore

        with self._errors(keys[0] if keys else ""):
            for first in range(0, len(keys), 1000):
                try:
                    obstore.delete(self._store, [self._key(key) for key in keys[first : first + 1000]])
                except FileNotFoundError:
                    # Stores without a bulk delete stop at the first missing one.
                    for key in keys[first : first + 1000]:
                        self._delete_one(key)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        import obstore

        with self._errors(prefix):
            for batch in obstore.list(self._store, self._folder(prefix)):
                for found in batch:
                    yield self._info(found)

    def list_folders(self, prefix: str = "") -> tuple[str, ...]:
        import obstore

        with self._errors(prefix):
            found = obstore.list_with_delimiter(self._store, self._folder(prefix))
            return tuple(sorted(path.rstrip("/").rpartition("/")[2] for path in found["common_prefixes"]))

    def head(self, key: str) -> ObjectInfo | None:
        import obstore

        with self._errors(key):
            try:
                return self._info(obstore.head(self._store, self._key(key)))
            except FileNotFoundError:
                return None

    def exists(self, key: str) -> bool:
        return self.head(key) is not None

    def check_writable(self) -> None:
        """Create, create again (must be refused:

        the journal's lock rests on it) and delete a probe object.
        """
        probe = f".raysweep-probe-{secrets.token_hex(6)}"
        try:
            self.put_if_absent(probe, b"probe")
            conditional = not self.put_if_absent(probe, b"again")
            self.delete(probe)
        except StorageUnavailableError:
            raise
        except StorageError as error:
            raise StorageNotWritableError(
                "storage_path", f"{self._url}: {error.problem}", error.fix
            ) from error
        if not conditional:
            raise StorageNotWritableError(
                "storage_path",
                f"{self._url} ignores If-None-Match: two controllers could write one sweep",
                "use a store that supports conditional writes",
            )

    def _key(self, key: str) -> str:
        return self._prefix + check_key(key)

    def _folder(self, prefix: str) -> str | None:
        return (self._prefix + check_key(prefix) if prefix else self._prefix.rstrip("/")) or None

    def _info(self, found: ObjectMeta) -> ObjectInfo:
        return ObjectInfo(
            key=found["path"].removeprefix(self._prefix),
            size_bytes=found["size"],
            modified_at=found["last_modified"].timestamp(),
        )

    def _delete_one(self, key: str) -> None:
        import obstore

        try:
            obstore.delete(self._store, self._key(key))
        except FileNotFoundError:
            return

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        from obstore import exceptions

        path = f"{self._url}/{key}".rstrip("/")
        _refuse_after_fork(path)
        try:
            yield
        except RaysweepError:  # from the chunks of a put
            raise
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            refusal = refusal_of(error)
            fix = refusal.fix or "check the credentials and the bucket's policy"
            raise StorageError(path, refusal.problem, fix) from error
        except FileNotFoundError as error:
            raise StorageError(path, "the bucket does not exist", "create it, or check its name") from error
        except (exceptions.InvalidPathError, exceptions.NotSupportedError, ValueError) as error:
            raise StorageError(path, _first_line(error), "use another name") from error
        except (exceptions.BaseError, OSError) as error:
            refusal = refusal_of(error)
            fix = refusal.fix or "check the network and the endpoint"
            raise StorageUnavailableError(path, refusal.problem, fix) from error


def _open(url: str) -> tuple[str, ObjectStore]:
    """(prefix inside the obstore store, the obstore store)."""
    from obstore import exceptions
    from obstore.store import MemoryStore, from_url

    scheme, _, rest = url.partition("://")
    if scheme == "memory":
        name, _, folder = rest.strip("/").partition("/")
        with _memory_lock:
            return (f"{folder}/" if folder else ""), _memory.setdefault(name, MemoryStore())
    try:
        return "", from_url(
            url.rstrip("/"),
            config=_config(scheme),
            client_options={
                "allow_http": _is_http_endpoint(),
                "timeout": timedelta(seconds=REQUEST_TIMEOUT_S),
            },
            retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=30)},
        )
    except (exceptions.BaseError, ValueError) as error:
        raise StorageNotWritableError(
            "storage_path",
            f"{url!r} cannot be opened ({_first_line(error)})",
            "use the form s3://bucket/prefix",
        ) from error


def _config(scheme: str) -> Any:
    # obstore reads AWS_ENDPOINT_URL itself; the service-specific name that the AWS tools prefer is passed on
    # here.
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3")
    return {"aws_endpoint": endpoint} if endpoint and scheme in ("s3", "s3a") else None


def _is_http_endpoint() -> bool:
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT")
    return any(os.environ.get(name, "").startswith("http://") for name in names)


def _refuse_after_fork(path: str) -> None:
    global _user_pid
    pid = os.getpid()
    if _user_pid is None:
        _user_pid = pid
    elif _user_pid != pid:
        raise StorageError(
            path,
            "remote storage was in use before this process was forked, and cannot be used after a fork",
            "use it from the parent process, or start this one with spawn",
        )


def _first_line(error: BaseException) -> str:
    text = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return text if len(text) <= 240 else f"{text[:240]}..."
