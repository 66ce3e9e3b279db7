"""Access to the dashboard: anyone on this machine, or anyone with the token."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from starlette.requests import cookie_parser

from raysweep.errors import SpecError

TOKEN_VARIABLE: Final = "RAYSWEEP_DASHBOARD_TOKEN"
MIN_TOKEN: Final = 16
COOKIE: Final = "raysweep_dashboard"


@dataclass(frozen=True, slots=True)
class Access:
    """The check of a request's access. `token`: empty on loopback, where none is needed.

    Raises:
        SpecError: The host is not loopback and there is no token, or the token is short.
    """

    host: str = "127.0.0.1"
    token: str = ""

    def __post_init__(self) -> None:
        if self.token and len(self.token) < MIN_TOKEN:
            problem = f"has {len(self.token)} characters; {MIN_TOKEN} are needed"
            raise SpecError(TOKEN_VARIABLE, problem, "make one with: openssl rand -hex 16")
        if not self.token and not is_loopback(self.host):
            problem = f"{self.host} can be reached from outside, and there is no token"
            raise SpecError("--host", problem, f"set {TOKEN_VARIABLE}, or leave --host out")

    def allows(self, headers: Mapping[str, str]) -> bool:
        """True if a request with these headers may be answered. Their names may have any case."""
        found = {name.lower(): value for name, value in headers.items()}
        if not self.token:
            # A page of another site whose name leads here by DNS sends that name.
            return is_loopback(host_of(found.get("host", "")))
        kind, _, given = found.get("authorization", "").partition(" ")
        cookie = cookie_parser(found.get("cookie", "")).get(COOKIE, "")
        return (kind.lower() == "bearer" and self.knows(given.strip())) or self.knows(cookie)

    def knows(self, token: str) -> bool:
        """True if this is the token."""
        return bool(self.token) and hmac.compare_digest(token.encode(), self.token.encode())


def is_loopback(host: str) -> bool:
    """True if a name or an address stands for this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str:
    """The host of a `Host` header, without its port."""
    head, colon, port = header.rpartition(":")
    return head if colon and port.isdigit() else header
