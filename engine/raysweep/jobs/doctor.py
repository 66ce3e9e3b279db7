"""`raysweep doctor`: checks whether a sweep would run on this cluster. A failed check names its fix.

A small job (`jobs.probe`) checks what is only visible on the cluster. The job, and the files that both
sides wrote to compare the storage, are deleted afterwards.
"""

from __future__ import annotations

import asyncio
import platform
import uuid
from contextlib import suppress
from typing import Any, Final

import orjson

from raysweep import tested
from raysweep.errors import ClusterAuthError, ClusterError, RaysweepError, StorageError
from raysweep.jobs.attach import upload_code
from raysweep.jobs.checks import (
    KEY_PREFIX,
    PROBE_ENTRYPOINT,
    PROBE_PREFIX,
    PYTHON_PREFIX,
    Check,
    failed,
    marker,
    ok,
    read_checks,
    skipped,
    untested,
)
from raysweep.jobs.client import JobsClient
from raysweep.jobs.code.packaging import Entry, make_package
from raysweep.jobs.connection import ClusterConnection
from raysweep.jobs.options import JobOptions
from raysweep.jobs.releases import are_near, way_out
from raysweep.jobs.request import FILE, FOLDER, JobRequest
from raysweep.jobs.wire import JobInfo, Submission
from raysweep.specs import SweepSpec, TrainSpec
from raysweep.storage.objects.opening import open_store

UNTESTED_FIX: Final = "see docs/versions.md; run the contract tests on it, or use a tested version"
PROBE_S: Final = 300.0
INSTALL_FIX: Final = (
    "install raysweep[ray] for that one, or start Ray with the `python` that has it first on PATH; see"
    " docs/guides/cluster.md"
)
_OF_SPEC: Final = ("storage here", "storage on the cluster", "storage is shared", "trainable", "resources")


async def examine(
    to: ClusterConnection | str,
    spec: SweepSpec | TrainSpec | None = None,
    *,
    options: JobOptions | None = None,
    timeout_s: float = PROBE_S,
) -> list[Check]:
    """Look at a cluster, and, with a spec, at whether it could run there. Raises SpecError for a bad address.

    Args:
        to: The cluster.
        spec: What would be run; without one, only the cluster is looked at.
        options: How it would be submitted: code, environment, place of the driver.
        timeout_s: How long the job on the cluster may take.
    """
    async with JobsClient(to) as client:
        checks = await _check_cluster(client)
        if any(check.status == "failed" for check in checks):
            names = ("raysweep on the cluster", *(_OF_SPEC if spec is not None else ()))
            return [*checks, *(skipped(name, "the cluster cannot be asked") for name in names)]
        key = f"{KEY_PREFIX}{uuid.uuid4().hex[:12]}"
        here = await asyncio.to_thread(_leave_here, spec, key) if spec is not None else []
        try:
            checks += here
            checks += await _check_on_cluster(client, spec, key, options or JobOptions(), timeout_s)
        finally:
            if spec is not None:
                await asyncio.to_thread(_clean_up, spec, key)
        return checks


async def _check_cluster(client: JobsClient) -> list[Check]:
    address = client.connection.address
    has_token = client.connection.token is not None
    try:
        found = await client.version()
    except ClusterAuthError as error:
        return [ok("reachable", f"{address} answers"), failed("token", error.problem, error.fix)]
    except ClusterError as error:
        return [failed("reachable", error.problem, error.fix), skipped("token", "nothing answers")]
    checks = [ok("reachable", f"{address} answers")]
    try:
        await client.jobs()
        checks.append(ok("token", "it is accepted" if has_token else "none is asked for"))
    except ClusterError as error:
        return [*checks, failed("token", error.problem, error.fix)]
    return [*checks, _check_ray(found.ray), *_check_here()]


def _check_ray(version: str) -> Check:
    line = tested.untested("ray", version)
    if line:
        return untested("Ray", f"the cluster runs Ray {version}: {line}", UNTESTED_FIX)
    return ok("Ray", f"the cluster runs Ray {version}")


def _check_here() -> list[Check]:
    """Check the packages on this side: the orchestrator that submits, if there is one."""
    return [untested("installed here", line, UNTESTED_FIX) for line in tested.untested_here()]


def _leave_here(spec: SweepSpec | TrainSpec, key: str) -> list[Check]:
    """Write to the storage from this side."""
    try:
        store = open_store(spec.storage_path)
        store.check_writable()
        store.put(marker(key, "client"), b"{}")
    except RaysweepError as error:
        fix = "check the path and this side's credentials: outcomes are read from there"
        return [failed("storage here", str(error), fix)]
    return [ok("storage here", f"{store.url} is writable")]


def _clean_up(spec: SweepSpec | TrainSpec, key: str) -> None:
    with suppress(StorageError, RaysweepError):
        open_store(spec.storage_path).delete(marker(key, "client"), marker(key, "cluster"))


async def _check_on_cluster(
    client: JobsClient, spec: SweepSpec | TrainSpec | None, key: str, options: JobOptions, timeout_s: float
) -> list[Check]:
    job_id = key
    try:
        await client.submit(await _submission(client, spec, key, options))
        info = await _wait(client, job_id, timeout_s)
        log = await client.logs(job_id)
    except ClusterError as error:
        return _unasked(failed("raysweep on the cluster", error.problem, error.fix), spec)
    finally:
        with suppress(ClusterError):
            await client.stop(job_id)
        with suppress(ClusterError):
            await client.delete(job_id)
    record = _find_record(log)
    if record is None:
        return _unasked(_explain(info, client.scrub(log)), spec)
    return [_check_versions(record["versions"]), *read_checks(record["checks"])]


async def _submission(
    client: JobsClient, spec: SweepSpec | TrainSpec | None, key: str, options: JobOptions
) -> Submission:
    environment, _ = await upload_code(client, options)
    if spec is not None:
        request = JobRequest(kind=spec.kind, key=key, spec=spec.to_dict()).to_json()
        package = make_package([Entry(name=f"{FOLDER}/{FILE}", source=request, size_bytes=len(request))])
        await client.upload(package.uri, package.to_zip())
        environment["py_modules"] = [*environment.get("py_modules", []), package.uri]
    return Submission(
        job_id=key,
        entrypoint=PROBE_ENTRYPOINT,
        runtime_env=environment,
        env_vars=options.secrets(),
        metadata={"raysweep_kind": "doctor"},
        num_cpus=options.driver_cpus,
        memory_bytes=options.driver_memory_bytes,
        resources=options.driver_resources,
        label_selector=options.driver_labels,
    )


async def _wait(client: JobsClient, job_id: str, timeout_s: float) -> JobInfo:
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        info = await client.info(job_id)
        if info.is_ended or asyncio.get_running_loop().time() > deadline:
            return info
        await asyncio.sleep(0.5)


def _find_record(log: str) -> Any:
    text = _after(PROBE_PREFIX, log)
    return orjson.loads(text) if text else None


def _after(prefix: str, log: str) -> str:
    """The rest of the last line with this prefix; empty where there is none."""
    for line in reversed(log.splitlines()):
        _, found, rest = line.partition(prefix)
        if found:
            return rest
    return ""


def _explain(info: JobInfo, log: str) -> Check:
    """Explain why the probe said nothing."""
    name = "raysweep on the cluster"
    if "No module named" in log and "raysweep" in log.rpartition("No module named")[2]:
        python = _after(PYTHON_PREFIX, log) or "which could not be found"
        return failed(name, f"it is not installed for the job's `python`, {python}", INSTALL_FIX)
    if not info.is_ended:
        fix = "see the cluster's dashboard: is there room for a driver, and can runtime_env be built?"
        return failed(name, f"the job {info.job_id!r} is still {info.status}: {info.message}", fix)
    last = next((line for line in reversed(log.splitlines()) if line.strip()), info.message)
    return failed(
        name, f"the job {info.job_id!r} {info.status}: {last.strip()}", "see the cluster's dashboard"
    )


def _unasked(check: Check, spec: SweepSpec | TrainSpec | None) -> list[Check]:
    names = _OF_SPEC[1:] if spec is not None else ()
    return [check, *(skipped(name, "no job could tell") for name in names)]


def _check_versions(there: dict[str, str]) -> Check:
    from raysweep.version import __version__

    name = "raysweep on the cluster"
    shown = f"raysweep {there['raysweep']}, Python {there['python']}, Ray {there['ray']}"
    if not are_near(there["raysweep"], __version__):
        advice = way_out(submitter=__version__, here=there["raysweep"])
        return failed(name, f"{shown}; here is raysweep {__version__}, more than one release apart", advice)
    if there["raysweep"] != __version__:
        return ok(name, f"{shown}; here is raysweep {__version__}: one release apart, options of both only")
    return ok(name, f"{shown}; here is Python {platform.python_version()}")
