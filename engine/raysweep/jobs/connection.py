"""The connection to a Ray cluster: address, token, TLS, proxy, timeouts. Never shows a secret."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from raysweep.errors import SpecError
from raysweep.jobs.scrubbing import Scrubber

DEFAULT_PORT = 8265
_PROXIES = ("http", "https", "socks5", "socks5h")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def is_jobs_address(address: object) -> bool:
    """True if this names a cluster's Jobs API: an `http://` or `https://` URL, or a `ClusterConnection`."""
    if isinstance(address, ClusterConnection):
        return True
    return isinstance(address, str) and address.strip().lower().startswith(("http://", "https://"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConnection:
    """A connection to a cluster's dashboard, which serves the Jobs API. Raises SpecError for invalid values.

    The token is, in this order: the argument, `RAY_AUTH_TOKEN`, the file that `RAY_AUTH_TOKEN_PATH` names,
    `~/.ray/auth_token`; as Ray's own tools do it. An empty argument sends none. A token that was found so is
    read again where the cluster refuses it (`renewed`).
    """

    address: str
    """`http://host:8265` or `https://…`; a path before `/api` is kept, for dashboards behind a proxy."""
    token: SecretStr | None = None
    verify: bool = True
    """True if the server's certificate is checked. Only ever turn it off against a test server."""
    ca_bundle: str | None = None
    """A PEM file with the authorities that are trusted in place of the usual ones."""
    client_cert: str | None = None
    """A PEM file with this client's certificate, where the server asks for one."""
    client_key: str | None = None
    """Its key, where it is not in the same file."""
    proxy: SecretStr | None = None
    """The URL of a proxy; default: HTTP_PROXY, HTTPS_PROXY, NO_PROXY, where `trust_env` is set."""
    trust_env: bool = True
    """True if proxies, and SSL_CERT_FILE, are taken from the environment."""
    headers: Mapping[str, SecretStr] = field(default_factory=dict)
    """Further headers of each request, for what stands before the cluster."""
    connect_timeout_s: float = 10.0
    request_timeout_s: float = 60.0
    """The longest wait for one answer; an upload gets ten times as long."""
    tries: int = 4
    """The number of times that a request is sent, where it may be sent again."""
    renew: Callable[[], ClusterConnection] | None = field(default=None, repr=False, compare=False)
    """Reads the connection where it is kept, as its secrets may have been rotated. May block and raise."""
    _is_token_found: bool = field(default=False, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "address", _checked_address(self.address))
        put(self, "_is_token_found", self.token is None)
        put(self, "token", _secret(self.token) if self.token is not None else find_token())
        put(self, "proxy", _checked_proxy(_secret(self.proxy)))
        put(self, "headers", {name: SecretStr(_plain(value).strip()) for name, value in self.headers.items()})
        if self.token is not None:
            _check_token(self.token)
        for name, value in self.headers.items():
            _check_header(name, value)
        if self.tries < 1:
            raise SpecError("tries", f"{self.tries} is less than 1", "use 4")
        for name in ("ca_bundle", "client_cert", "client_key"):
            path = getattr(self, name)
            if path is not None and not os.path.isfile(os.path.expanduser(path)):
                raise SpecError(name, f"no file at {path!r}", "name a PEM file")
            put(self, name, os.path.expanduser(path) if path is not None else None)
        if self.client_key is not None and self.client_cert is None:
            raise SpecError("client_key", "is given without client_cert", "give both")

    @classmethod
    def of(cls, address: str | ClusterConnection) -> ClusterConnection:
        """The connection itself, or one to this address with all else from the environment."""
        return address if isinstance(address, ClusterConnection) else cls(address=address)

    def renewed(self) -> ClusterConnection | None:
        """With the secrets that are valid now; None where they are the same. May block and raise."""
        fresh = self
        if self.renew is not None:
            fresh = self.renew()
        elif self._is_token_found:
            fresh = replace(self, token=None)
        return fresh if fresh != self else None

    def scrubber(self) -> Scrubber:
        """A scrubber that takes this connection's secrets out of texts."""
        return Scrubber((self.token, self.proxy, *self.headers.values()))

    def ssl_context(self) -> ssl.SSLContext:
        """The TLS settings. Raises SpecError for files that are no certificates or keys."""
        if self.verify and self.ca_bundle is None and self.client_cert is None:
            return _usual_context(
                self.trust_env, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
            )
        import httpx

        try:
            if self.ca_bundle is not None:
                context = ssl.create_default_context(cafile=self.ca_bundle)
            else:
                context = httpx.create_ssl_context(trust_env=self.trust_env)
        except (ssl.SSLError, OSError) as error:
            raise SpecError("ca_bundle", f"holds no certificates ({error})", "name a PEM file") from None
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.client_cert is not None:
            try:
                # Never asks on the terminal for the password of a key that has one.
                context.load_cert_chain(self.client_cert, self.client_key, password=lambda: "")
            except (ssl.SSLError, OSError) as error:
                problem = f"{self.client_cert!r} cannot be used ({error})"
                fix = "name a PEM file with a certificate, and client_key for its key, without a password"
                raise SpecError("client_cert", problem, fix) from None
        return context


@lru_cache(maxsize=4)
def _usual_context(trust_env: bool, file: str | None, folder: str | None) -> ssl.SSLContext:
    """Trusts the usual authorities, which take a while to read; depends on what the key holds."""
    import httpx

    return httpx.create_ssl_context(trust_env=trust_env)


def find_token() -> SecretStr | None:
    """The token that the environment or the user's token file holds; None where there is none.

    Raises: SpecError where RAY_AUTH_TOKEN_PATH names a file that cannot be read.
    """
    given = os.environ.get("RAY_AUTH_TOKEN", "").strip()
    if given:
        return SecretStr(given)
    named = os.environ.get("RAY_AUTH_TOKEN_PATH", "").strip()
    path = Path(named or "~/.ray/auth_token").expanduser()
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError, RuntimeError) as error:
        if not named:
            return None
        why = getattr(error, "strerror", None) or "is not text"
        raise SpecError(
            "RAY_AUTH_TOKEN_PATH", f"{named!r} cannot be read ({why})", "check the path"
        ) from None
    return SecretStr(text) if text else None


def _checked_address(address: object) -> str:
    fix = f"write http://host:{DEFAULT_PORT} or https://…"
    if not isinstance(address, str) or not address.strip():
        raise SpecError("address", "is empty or no text", fix)
    text = address.strip().rstrip("/")
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise SpecError("address", f"is no URL ({error})", fix) from None
    if "@" in parts.netloc:
        # Not shown: it may be a password.
        raise SpecError("address", "has credentials in it", "give a token instead")
    if parts.scheme.lower() not in ("http", "https") or not host:
        raise SpecError("address", f"{text!r} is not an http(s) URL", fix)
    if parts.query or parts.fragment:
        raise SpecError("address", "has a query or a fragment", fix)
    return parts._replace(scheme=parts.scheme.lower()).geturl()


def _plain(value: object) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, str):
        return value
    raise SpecError("connection", f"a secret is a {type(value).__name__}", "give text or a SecretStr")


def _secret(value: object) -> SecretStr | None:
    """The secret, however it was given; None for none or an empty one."""
    text = "" if value is None else _plain(value).strip()
    return SecretStr(text) if text else None


def _check_token(token: SecretStr) -> None:
    text = token.get_secret_value()
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise SpecError("token", "has characters that no header can hold", "check what was copied")


def _check_header(name: object, value: SecretStr) -> None:
    if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
        raise SpecError("headers", f"{name!r} is not a name of a header", "use letters, digits and dashes")
    text = value.get_secret_value()
    if not (text.isascii() and text.isprintable()):
        problem = f"the value of {name!r} has characters that no header can hold"
        raise SpecError("headers", problem, "write it in ASCII, on one line")


def _checked_proxy(proxy: SecretStr | None) -> SecretStr | None:
    """The proxy, if it can be one. Raises: SpecError, which does not show it: it may hold a password."""
    if proxy is None:
        return None
    fix = "write http://host:3128, or http://user:password@host:3128 with %XX for special characters"
    try:
        parts = urlsplit(proxy.get_secret_value())
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise SpecError("proxy", "is no URL", fix) from None
    scheme = parts.scheme.lower()
    if scheme not in _PROXIES or not host or not proxy.get_secret_value().isascii():
        raise SpecError("proxy", f"is no URL of a proxy ({', '.join(_PROXIES)})", fix)
    if scheme.startswith("socks") and find_spec("socksio") is None:
        raise SpecError("proxy", f"{scheme}:// needs a package that is missing", "pip install 'httpx[socks]'")
    return proxy
