"""The agreement of this process and a cluster about tokens (`RAY_AUTH_MODE`)."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import Any, Final

ANSWER_S: Final = 5.0


def refuses_calls_without() -> bool:
    """True if this process answers only calls with its token. Before Ray 2.52 none does."""
    core: Any = import_module("ray._raylet")
    mode = getattr(core, "get_authentication_mode", None)
    return mode is not None and bool(mode() == core.AuthenticationMode.TOKEN)


def is_open(gcs_address: str) -> bool:
    """True if a cluster's control store answers a call without a token. False where it cannot be told."""
    try:
        grpc: Any = import_module("grpc")  # it has no types
    except ImportError:
        return False
    options = [("grpc.enable_http_proxy", 0)]
    with suppress(grpc.RpcError), grpc.insecure_channel(gcs_address, options) as channel:
        check = channel.unary_unary("/ray.rpc.NodeInfoGcsService/CheckAlive")
        check(b"", timeout=ANSWER_S)
        return True
    return False
