"""The connection to Ray: an embedded cluster that is removed without a trace, or a running cluster."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from threading import Lock

from raysweep.cluster.interrupts import signals_wait
from raysweep.cluster.ray.embedded_start import start_embedded
from raysweep.cluster.ray.embedded_watch import EmbeddedWatch
from raysweep.cluster.ray.shared_connection import FoundRay, RayConnection, SharedRay
from raysweep.cluster.ray.temp_folder import ray_folder
from raysweep.errors import ClusterAuthError, ClusterLostError, ClusterUnreachableError
from raysweep.raycompat.importing import quiet_import
from raysweep.raycompat.signals import handlers_kept
from raysweep.raycompat.uv import found_environment
from raysweep.threads import loaded_module

# Imported into each prestarted worker process of an embedded cluster, before the first actor needs them.
PRELOAD = "raysweep.worker.actor"
CONNECT_S = 10.0
_importing = Lock()


@contextmanager
def connect(address: str | None = None, num_cpus: float | None = None) -> Iterator[RayConnection]:
    """Use the Ray that this process is connected to; else connect to `address`; else start an embedded one.

    On several threads at once, they use one.

    Args:
        address: None or `"local"` (embedded), `"auto"`, or `host:port`.
        num_cpus: For an embedded Ray; the machine's cores by default.

    Raises:
        ClusterUnreachableError: Nothing answers at `address`, or another thread uses another Ray.
        ClusterAuthError: This process requires a token, and the cluster has none.
        ClusterLostError: The embedded Ray of this process died, and other threads have not left it yet.
    """
    # Half an import of Ray could not be completed in this process.
    with signals_wait(), _importing, quiet_import():
        import ray  # noqa: F401

    with _shared.used(address, num_cpus) as connection:
        yield connection


def find_loss() -> ClusterLostError | None:
    """The reason why the embedded Ray of this process died; None: it lives, or there is none."""
    return _shared.find_loss()


def is_alone() -> bool:
    """True if nothing else of this process uses the Ray that it has started."""
    return _shared.has_one_user


def stage_of(address: str | None) -> str:
    """The step that `connect` is about to do, in a few words."""
    ray = loaded_module("ray")
    if ray is not None and ray.is_initialized():
        return "using the Ray of this process"
    return "starting Ray" if address in (None, "local") else f"connecting to Ray at {address}"


def sharing() -> AbstractContextManager[None]:
    """One Ray for several steps in a context: the first that needs one starts it, and it ends with this."""
    return _shared.kept()


@contextmanager
def _started(address: str | None, num_cpus: float | None) -> Iterator[RayConnection]:
    import ray

    if address is None or address == "local":
        with _embedded(num_cpus) as connection:
            yield connection
        return
    from raysweep.raycompat.quiet import quiet_raylet

    _check_port(address)
    try:
        with signals_wait(), handlers_kept(), found_environment():
            ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        text = str(error)
        # Ray takes its token by itself for "auto" and for an embedded cluster, but not for an address.
        fix = "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to the cluster's" if "Unauthent" in text else ""
        raise ClusterUnreachableError(address, text.splitlines()[0], fix) from error
    try:
        _check_token(address)
        with quiet_raylet():
            yield RayConnection(address=address, host=_own_host(), is_embedded=False, is_ours=True)
    finally:
        with signals_wait():
            ray.shutdown()


def join_cluster() -> None:
    """Connect this process, a job on a cluster, to that cluster. What trials print has logs of its own; what
    their modules print while they are imported, and Ray between trials, goes to the job's log.

    Raises:
        ClusterUnreachableError: This is no node of a cluster.
        ClusterAuthError: See `connect`.
    """
    import ray

    try:
        with found_environment():
            ray.init(address="auto", logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        problem = next(iter(str(error).splitlines()), type(error).__name__)
        raise ClusterUnreachableError("auto", problem, "run this as a job of a Ray cluster") from error
    _check_token("auto")


def leave_cluster() -> None:
    """End the connection, if there is one."""
    ray = loaded_module("ray")
    if ray is not None and ray.is_initialized():
        ray.shutdown()


def _check_port(address: str) -> None:
    """Check that a server listens at `host:port`: Ray itself would try for minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or "/" in host:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise ClusterUnreachableError(
            address, f"nothing answers ({error})", "check the address, or start a cluster with `ray start`"
        ) from error


def _check_token(address: str) -> None:
    """Check that the cluster has tokens where this process requires one.

    It would refuse the calls in which the cluster asks after its actors, and Ray would end each as it starts.
    """
    import ray

    from raysweep.raycompat import tokens

    if tokens.refuses_calls_without() and tokens.is_open(str(ray.get_runtime_context().gcs_address)):
        problem = "it has no tokens, and RAY_AUTH_MODE=token is set here: no worker could start"
        raise ClusterAuthError(address, problem, "unset RAY_AUTH_MODE, or start the cluster with it")


def _own_host() -> str:
    import ray

    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]


@contextmanager
def _embedded(num_cpus: float | None) -> Iterator[RayConnection]:
    import ray

    from raysweep.raycompat.cluster import own_processes
    from raysweep.raycompat.quiet import quiet_raylet

    defaults = {
        "RAY_preload_python_modules": PRELOAD,
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        # What Ray's C++ core would say on stderr of this process is for its developers.
        "RAY_BACKEND_LOG_LEVEL": "fatal",
    }
    added = {name: value for name, value in defaults.items() if name not in os.environ}
    os.environ.update(added)
    with ExitStack() as ending:
        try:
            with ray_folder() as folder, quiet_raylet():
                try:
                    with signals_wait():
                        start_embedded(num_cpus, folder)
                    watch = EmbeddedWatch(own_processes())
                    with watch.watching():
                        yield RayConnection(
                            address="local", host="127.0.0.1", is_embedded=True, is_ours=True, watch=watch
                        )
                finally:
                    # Until the folder is gone as well: an interrupted shutdown leaves processes behind.
                    ending.enter_context(signals_wait())
                    ray.shutdown()
        finally:
            for name in added:
                os.environ.pop(name, None)


def _find() -> FoundRay | None:
    import ray

    if not ray.is_initialized():
        return None
    return FoundRay(
        gcs_address=str(ray.get_runtime_context().gcs_address),
        host=_own_host(),
        cpus=float(ray.cluster_resources().get("CPU", 0.0)),  # type: ignore[no-untyped-call]
    )


_shared = SharedRay(_started, _find)
