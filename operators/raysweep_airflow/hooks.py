"""The hook: an Airflow connection of type `raysweep` as a `ClusterConnection`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from airflow.sdk import Connection
from airflow.sdk.exceptions import ErrorType
from airflow.sdk.log import mask_secret
from pydantic import SecretStr

from raysweep.errors import ConnectionUnreadableError, RaysweepError, SpecError, one_line
from raysweep.jobs import Cluster, ClusterConnection
from raysweep.threads import on_thread
from raysweep_airflow.compat import AirflowNotFoundException, BaseHook
from raysweep_airflow.provider import CONNECTION_TYPE, DEFAULT_CONN_ID

_FALSE: Final = frozenset({"false", "0", "no", "off", ""})


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The content of a connection: the cluster, the storage of sweeps, and the address of the dashboard."""

    cluster: ClusterConnection
    storage_path: str | None = None
    dashboard_url: str = ""

    @classmethod
    def of(cls, connection: Connection) -> Access:
        """From an Airflow connection: host and port, password as the token, the form's other fields in extra.

        Raises: SpecError for what cannot be; it shows no secret.
        """
        extra = _extra(connection)
        cluster = ClusterConnection(
            address=_address(connection),
            # Without a password the token comes from where Ray's own tools take it: see ClusterConnection.
            token=SecretStr(connection.password) if connection.password else None,
            verify=_flag(extra.get("verify", True)),
            ca_bundle=extra.get("ca_bundle") or None,
            client_cert=extra.get("client_cert") or None,
            client_key=extra.get("client_key") or None,
            proxy=extra.get("proxy") or None,
            headers=_auth_headers(extra),
            request_timeout_s=_seconds(extra.get("request_timeout_s") or 60.0),
        )
        return cls(
            cluster=cluster,
            storage_path=extra.get("storage_path") or None,
            dashboard_url=str(extra.get("dashboard_url") or cluster.address).rstrip("/"),
        )


class RaySweepHook(BaseHook):
    """A Ray cluster by its Airflow connection: `RaySweepHook("raysweep_default").cluster()`.

    Args:
        conn_id: A connection of type `raysweep`.
    """

    conn_name_attr = "conn_id"
    default_conn_name = DEFAULT_CONN_ID
    conn_type = CONNECTION_TYPE
    hook_name = "Ray cluster (raysweep)"

    def __init__(self, conn_id: str = DEFAULT_CONN_ID, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id

    def access(self, *, was_there: bool = False) -> Access:
        """The connection's content.

        Args:
            was_there: It is known to have been there: that it is not found is not believed.

        Raises:
            SpecError: It cannot be used, or the backend says that there is none.
            ConnectionUnreadableError: Whether there is one is not known: a secrets backend, the API server or
                its database failed.
        """
        try:
            connection = self.get_connection(self.conn_id)
        except Exception as error:  # noqa: BLE001  Airflow says "not found" of whatever failed
            raise self._unread(error, was_there) from None
        return self._of(connection)

    async def aaccess(self, *, was_there: bool = False) -> Access:
        """The same in an event loop, such as the triggerer's."""
        try:
            connection = await self.aget_connection(self.conn_id)
        except Exception as raised:  # noqa: BLE001  the same
            error = raised
            raise await on_thread(lambda: self._unread(error, was_there)) from None
        return self._of(connection)

    def _of(self, connection: Connection) -> Access:
        """The access that a connection gives; clients read it again where the cluster refuses their token."""
        access = Access.of(connection)
        renew = partial(_renewed, self.conn_id)
        return replace(access, cluster=replace(access.cluster, renew=renew))

    def _unread(self, error: Exception, was_there: bool) -> RaysweepError:
        """The error for a connection that Airflow did not give."""
        why = one_line(f"{type(error).__name__}: {error}", 300)
        if isinstance(error, AirflowNotFoundException):
            why = why_unread(self.conn_id) or ("it was there before" if was_there else "")
        if why:
            fix = "see the logs of Airflow's api-server and of its secrets backend"
            return ConnectionUnreadableError(self.conn_id, f"the connection could not be read ({why})", fix)
        fix = f"airflow connections add {self.conn_id} --conn-type raysweep --conn-host http://head:8265"
        return SpecError("conn_id", f"there is no connection {self.conn_id!r}", fix)

    def get_conn(self) -> ClusterConnection:
        """The connection to the cluster, for everything in `raysweep` that takes an `address`."""
        return self.access().cluster

    def cluster(self) -> Cluster:
        """The cluster, to look at its jobs, their logs, its nodes, and to cancel."""
        return Cluster(self.get_conn())

    def test_connection(self) -> tuple[bool, str]:
        """True if the cluster answers, and accepts the token: what the form's button asks."""
        try:
            cluster = self.cluster()
            version = cluster.version()
            # Anyone may ask for the version; the jobs are shown only with the token.
            cluster.jobs()
        except RaysweepError as error:
            return False, str(error)
        except Exception as error:  # noqa: BLE001  whatever it is, the form shows it
            return False, f"{type(error).__name__}: {error}"
        return True, f"Ray {version.ray} answers at {cluster.connection.address}"


def _renewed(conn_id: str) -> ClusterConnection:
    return RaySweepHook(conn_id).access(was_there=True).cluster


def why_unread(conn_id: str) -> str:
    """The failure behind Airflow 3.3's "not found", which Airflow does not tell; empty where it is true.

    Each secrets backend of this process is asked once more, without Airflow's way of passing over its errors;
    so is the API server. A database that fails behind the API server is answered 404 there, and is not told
    from a connection that does not exist.
    """
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import ErrorResponse, GetConnection
    from airflow.sdk.execution_time.secrets import ExecutionAPISecretsBackend
    from airflow.sdk.execution_time.supervisor import ensure_secrets_backend_loaded

    for backend in ensure_secrets_backend_loaded():
        try:
            if isinstance(backend, ExecutionAPISecretsBackend):
                answer: Any = task_runner.SUPERVISOR_COMMS.send(GetConnection(conn_id=conn_id))
                if not isinstance(answer, ErrorResponse):
                    return _BACK
                if answer.error != ErrorType.CONNECTION_NOT_FOUND:
                    return f"the API server answered {answer.error.value}"
            elif backend.get_connection(conn_id=conn_id) is not None:
                return _BACK
        except Exception as error:  # noqa: BLE001  whatever it is, it is why
            return one_line(f"{type(backend).__name__}: {type(error).__name__}: {error}", 300)
    return ""


_BACK: Final = "it was not found, and then it was"


def _extra(connection: Connection) -> dict[str, Any]:
    try:
        extra = connection.extra_dejson
    except (ValueError, TypeError):
        raise SpecError("extra", "of the connection is not JSON", "correct the connection") from None
    prefix = f"extra__{CONNECTION_TYPE}__"
    return {str(name).removeprefix(prefix): value for name, value in dict(extra or {}).items()}


def _address(connection: Connection) -> str:
    host = (connection.host or "").strip().rstrip("/")
    if not host:
        fix = "write https://ray.example.com, or a host's name and the port"
        raise SpecError("host", f"of the connection {connection.conn_id!r} is empty", fix)
    if "://" not in host:
        host = f"{connection.schema or 'http'}://{host}"
    scheme, _, rest = host.partition("://")
    name, slash, path = rest.partition("/")
    if connection.port and ":" not in name.rpartition("]")[2]:
        name = f"{name}:{connection.port}"
    return f"{scheme}://{name}{slash}{path}"


def _auth_headers(extra: Mapping[str, Any]) -> Mapping[str, SecretStr]:
    """Masked in logs, and by Airflow's API: the name of the field says `auth`."""
    if extra.get("headers"):
        raise SpecError(
            "headers", "of the connection are shown by Airflow's API", "call the field auth_headers"
        )
    found = _headers(extra, "auth_headers")
    for value in found.values():
        mask_secret(value)
    return {name: SecretStr(value) for name, value in found.items()}


def _headers(extra: Mapping[str, Any], field: str) -> Mapping[str, str]:
    given = extra.get(field)
    if not given:
        return {}
    fix = 'write {"X-Name": "…"}'
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            raise SpecError(field, "of the connection are no JSON", fix) from None
    if not isinstance(given, Mapping) or not all(isinstance(each, str) for each in given.values()):
        raise SpecError(field, "of the connection are not a mapping of strings", fix)
    return given


def _seconds(given: Any) -> float:
    try:
        seconds = float(given)
    except (TypeError, ValueError):
        seconds = 0.0
    if not 0.0 < seconds < float("inf"):
        raise SpecError("request_timeout_s", "of the connection is not a number of seconds", "write 60")
    return seconds


def _flag(given: Any) -> bool:
    return given.strip().lower() not in _FALSE if isinstance(given, str) else given is not False
