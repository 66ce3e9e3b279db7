"""The listeners at an address of this node: no other server is measured in place of a trial's own.

Linux shows the listening sockets of all processes in `/proc/net`, and the sockets of each process that may be
looked at in `/proc/PID/fd`. Elsewhere a connection tells that something listens, and not what.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from raysweep.programs.open_files import open_files

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_LISTEN: Final = "0A"
_FORWARDERS: Final = frozenset({"docker-proxy"})
"""Programs of container engines that listen for a container, which is no process of ours."""


def local_addresses(host: str) -> set[Address]:
    """The addresses of a host that are of this node; empty for another node."""
    found: set[Address] = set()
    with suppress(OSError, UnicodeError):
        for family, *_, name in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with suppress(OSError, ValueError), socket.socket(family, socket.SOCK_STREAM) as sock:
                sock.bind(name)  # refused for an address that is not here
                found.add(ipaddress.ip_address(str(name[0]).partition("%")[0]))
    return found


def listeners(addresses: Collection[Address], port: int) -> set[str]:
    """The listening sockets that may answer at these addresses, as `open_files` names them."""
    return {
        f"socket:[{inode}]"
        for at, there, inode in _listening()
        if there == port and any(_answers(at, address) for address in addresses)
    }


def _listening() -> Iterator[tuple[Address, int, str]]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError), open(table) as lines:
            next(lines, None)
            for line in lines:
                _, local, _, state, *rest = line.split()
                if state == _LISTEN:
                    address, _, port = local.partition(":")
                    yield _address(address), int(port, 16), rest[5]


def _address(text: str) -> Address:
    """From words in the machine's order of bytes."""
    words = (int(text[index : index + 8], 16) for index in range(0, len(text), 8))
    address = ipaddress.ip_address(b"".join(word.to_bytes(4, sys.byteorder) for word in words))
    mapped = getattr(address, "ipv4_mapped", None)
    return address if mapped is None else mapped


def _answers(at: Address, address: Address) -> bool:
    """True if a socket that listens `at` gets connections to an address: `::` may have those of IPv4, too."""
    return at == address or (at.is_unspecified and at.version >= address.version)


def owners(sockets: Collection[str]) -> dict[int, str]:
    """The names of the processes that have one of these sockets, as far as they may be looked at."""
    found: dict[int, str] = {}
    for name in filter(str.isdigit, os.listdir("/proc") if sockets and os.path.isdir("/proc") else ()):
        if any(what in sockets for _, what in open_files(int(name))):
            with suppress(OSError):
                found[int(name)] = Path(f"/proc/{name}/comm").read_text(errors="replace").strip()
    return found


def find_stranger(addresses: Collection[Address], port: int, own: Collection[int]) -> str:
    """A process that may answer at an address in place of the processes `own`, for a message; or nothing.

    A container, and what listens for one, counts as started by them: it is no descendant of any process.
    """
    for pid, name in owners(listeners(addresses, port)).items():
        if pid not in own and name not in _FORWARDERS and not _is_in_container(pid):
            return f"{name} (process {pid})"
    return ""


def _is_in_container(pid: int) -> bool:
    """True if it has process numbers of its own, below those of this process."""
    return _depth(str(pid)) > _depth("self")


def _depth(pid: str) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("NSpid:"):
                return len(line.split())
    return 0


def is_taken(host: str, addresses: Collection[Address], port: int) -> bool:
    """True if something listens already."""
    if os.path.exists("/proc/net/tcp"):
        return bool(listeners(addresses, port))
    with suppress(OSError), socket.create_connection((host, port), timeout=1.0):
        return True
    return False
