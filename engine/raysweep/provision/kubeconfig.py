"""Access to a Kubernetes API server: from a kubeconfig, or from the service account of a pod.

Secrets are read when they are used: a service account's token is replaced every hour, and those of cloud
providers live for minutes.
"""

from __future__ import annotations

import atexit
import base64
import binascii
import hashlib
import json
import os
import shutil
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

from raysweep.documents.text import read_json, read_yaml
from raysweep.errors import SpecError, one_line

POD_FOLDER: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
EXEC_S: Final = 60.0
"""The longest run of a credential plugin, such as `aws eks get-token`."""
MARGIN_S: Final = 30.0
"""A plugin's token is replaced so long before it expires."""


class TokenSource:
    """A token that may change: given, in a file, or made by a credential plugin. Safe on several threads."""

    def __init__(
        self, *, given: str = "", file: str = "", plugin: Mapping[str, Any] | None = None, cluster: str = ""
    ) -> None:
        self._given, self._file, self._plugin, self._cluster = given, file, plugin, cluster
        self._made: tuple[str, float] | None = None
        self._lock = threading.Lock()

    def read(self, *, is_refused: bool = False) -> SecretStr | None:
        """The token as it is now; None where there is none. May block.

        Args:
            is_refused: The last one was refused: a plugin is asked again.

        Raises: SpecError.
        """
        if self._file:
            try:
                return SecretStr(Path(self._file).read_text(encoding="utf-8").strip())
            except (OSError, UnicodeDecodeError) as error:
                raise SpecError("kubeconfig", f"the token's file cannot be read ({error})", _FIX) from None
        if self._plugin is None:
            return SecretStr(self._given) if self._given else None
        with self._lock:
            if self._made is None or is_refused or time.time() > self._made[1] - MARGIN_S:
                self._made = _run_plugin(self._plugin, self._cluster)
            return SecretStr(self._made[0])


_FIX: Final = "check the kubeconfig, or log in to the cluster again"


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeAccess:
    """An API server and how to get in. Shows no secret."""

    server: str
    namespace: str = "default"
    is_pod: bool = False
    """True if this process is in a pod of that cluster."""
    token: TokenSource = field(default_factory=TokenSource, repr=False, compare=False)
    verify: bool = True
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    proxy: str | None = field(default=None, repr=False)

    def ssl_context(self) -> ssl.SSLContext:
        """The TLS settings. Raises: SpecError for files that are no certificates or keys."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if not self.verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file, self.key_file, password=lambda: "")
        except (ssl.SSLError, OSError) as error:
            raise SpecError("kubeconfig", f"a certificate or key cannot be used ({error})", _FIX) from None
        return context


def find_access(kubeconfig: str | None = None, context: str | None = None) -> KubeAccess:
    """The API server that a user means: kubectl's, or in a pod that of its own cluster.

    Args:
        kubeconfig: A file; default: those that KUBECONFIG names, in a pod its service account, else
            `~/.kube/config`.
        context: One of its contexts; default: the current one.

    Raises: SpecError.
    """
    named = kubeconfig or os.environ.get("KUBECONFIG", "").strip()
    if not named and context is None and (pod := _of_pod()) is not None:
        return pod
    paths = [Path(each).expanduser() for each in (named or "~/.kube/config").split(os.pathsep) if each]
    found = [path for path in paths if path.is_file()]
    if not found:
        fix = "give kubeconfig, set KUBECONFIG, or run in a pod with a service account"
        raise SpecError("kubeconfig", f"no file at {', '.join(map(str, paths))}", fix)
    return _of_files(found, context)


def _of_pod() -> KubeAccess | None:
    folder = Path(os.environ.get("RAYSWEEP_SERVICE_ACCOUNT", POD_FOLDER))
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (folder / "token").is_file():
        return None
    namespace = folder / "namespace"
    authority = folder / "ca.crt"
    return KubeAccess(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=namespace.read_text(encoding="utf-8").strip() if namespace.is_file() else "default",
        is_pod=True,
        token=TokenSource(file=str(folder / "token")),
        ca_file=str(authority) if authority.is_file() else None,
    )


def _of_files(paths: Iterable[Path], context: str | None) -> KubeAccess:
    """As kubectl merges several files: of two entries with one name, the first counts."""
    current, where = "", ""
    entries: dict[str, dict[str, tuple[Any, Path]]] = {"contexts": {}, "clusters": {}, "users": {}}
    for path in paths:
        where = where or str(path)
        document = read_yaml(path.read_bytes(), str(path))
        if not isinstance(document, Mapping):
            raise SpecError("kubeconfig", f"{path} is not a kubeconfig", "give one that kubectl can use")
        current = current or str(document.get("current-context") or "")
        for kind, known in entries.items():
            for each in document.get(kind) or ():
                content = each.get(kind.removesuffix("s")) or {}
                known.setdefault(str(each.get("name")), (content, path.parent))
    name = context or current
    if name not in entries["contexts"]:
        has = ", ".join(entries["contexts"]) or "none"
        raise SpecError("context", f"{where} has no context {name!r}", f"it has {has}")
    chosen, _ = entries["contexts"][name]
    cluster, beside = entries["clusters"].get(str(chosen.get("cluster")), ({}, Path()))
    user, user_beside = entries["users"].get(str(chosen.get("user")), ({}, Path()))
    server = str(cluster.get("server") or "").rstrip("/")
    if not server.startswith(("http://", "https://")):
        raise SpecError("kubeconfig", f"context {name!r} of {where} names no server", "check its cluster")
    if user.get("auth-provider") or (user.get("username") and not user.get("token")):
        problem = f"the user of context {name!r} logs in by auth-provider or password"
        raise SpecError("kubeconfig", problem, "use a token, a client certificate or an exec plugin")
    return KubeAccess(
        server=server,
        namespace=str(chosen.get("namespace") or "default"),
        token=TokenSource(
            given=str(user.get("token") or ""),
            file=_located(user.get("tokenFile"), user_beside) or "",
            plugin=user.get("exec"),
            cluster=server,
        ),
        verify=not cluster.get("insecure-skip-tls-verify", False),
        ca_file=_file_of(cluster, "certificate-authority", beside),
        cert_file=_file_of(user, "client-certificate", user_beside),
        key_file=_file_of(user, "client-key", user_beside),
        proxy=cluster.get("proxy-url") or None,
    )


def _located(given: Any, beside: Path) -> str | None:
    return str(beside / Path(str(given)).expanduser()) if given else None


def _file_of(entry: Mapping[str, Any], name: str, beside: Path) -> str | None:
    """A file of a kubeconfig: named, or with its content in it, which is put into a private folder."""
    data = entry.get(f"{name}-data")
    if not data:
        return _located(entry.get(name), beside)
    try:
        content = base64.b64decode(str(data), validate=True)
    except (binascii.Error, ValueError):
        raise SpecError("kubeconfig", f"{name}-data is not base64", _FIX) from None
    path = _private_folder() / f"{hashlib.blake2b(content, digest_size=12).hexdigest()}.pem"
    if not path.exists():
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    return str(path)


@lru_cache(maxsize=1)
def _private_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="raysweep-kube-"))  # 0700
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _run_plugin(plugin: Mapping[str, Any], server: str) -> tuple[str, float]:
    """A token and when it expires, in UTC seconds, by an `exec` plugin of a kubeconfig."""
    command = str(plugin.get("command") or "")
    version = str(plugin.get("apiVersion") or "client.authentication.k8s.io/v1")
    asked = {
        "kind": "ExecCredential",
        "apiVersion": version,
        "spec": {"interactive": False, "cluster": {"server": server}},
    }
    given = {str(each["name"]): str(each["value"]) for each in plugin.get("env") or ()}
    environment = {**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(asked)}
    try:
        done = subprocess.run(
            [command, *map(str, plugin.get("args") or ())],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=EXEC_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = f"the credential plugin {command!r} did not run ({type(error).__name__})"
        raise SpecError("kubeconfig", problem, "install it, or log in again") from None
    if done.returncode != 0:
        said = one_line(done.stderr or "it said nothing", 200)
        problem = f"the credential plugin {command!r} ended with code {done.returncode}: {said}"
        raise SpecError("kubeconfig", problem, "log in to the cluster again")
    try:
        status = read_json(done.stdout, command)["status"]
        token = str(status["token"])
        expires = status.get("expirationTimestamp")
        at = datetime.fromisoformat(str(expires)).timestamp() if expires else float("inf")
    except (SpecError, KeyError, TypeError, ValueError, AttributeError):
        # Its text is not shown: it may hold the token.
        raise SpecError(
            "kubeconfig", f"the credential plugin {command!r} gave no token", "log in again"
        ) from None
    return token, at
