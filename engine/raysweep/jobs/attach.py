"""Submit a sweep to a cluster, or attach to the job that runs it: one key, one job, however often asked.

The Jobs API refuses a `submission_id` that exists: that is the compare-and-set all of this rests on. Jobs of
a sweep are `<sweep_id>.1`, `.2`, …; `decisions.py` says when there is a next one.

Crash windows, of a caller that dies (or whose answers are lost) at any point:

- before the submission: nothing is left but an uploaded package, which the cluster forgets in minutes.
- after it, before its answer: the job runs. The next call, a repeat of the request included, is refused that
  number, and attaches.
- after the answer, before `jobs/<n>.json` is written: the cluster knows the job, and the next call writes it.
  Only if the head is lost too is the number given once more; to a new head, which knows no other job of it.
- `announce` gets the job's handle before it is submitted: who gives up from then on can name the job, and a
  request to cancel that names it counts whenever its driver starts (`Cancellation.number`).
- between the submission of a job that continues from an outcome and that outcome's being put aside: who asks
  for the same again attaches, and puts it aside; so does the job's controller.
- `jobs/<n>.json` is only written once the cluster has taken job n, and is read before the cluster is asked: a
  number that is noted and unknown to the cluster is lost, never one that is about to be submitted.

Two jobs of one sweep that do run at once (two clusters, one storage) do no harm: the journal fences one off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, Self, TypeVar

from pydantic import SecretStr

from raysweep.errors import (
    JobExistsError,
    JobStoppedError,
    StorageError,
    StorageNotSharedError,
    StorageUnavailableError,
    one_line,
)
from raysweep.hooks.tracing import VARIABLE as TRACEPARENT
from raysweep.hooks.tracing import current_traceparent
from raysweep.jobs.client import JobsClient, open_client
from raysweep.jobs.code.ignores import TOOL_REASON
from raysweep.jobs.code.packaging import Entry, LeftOut, Package, make_package, pack_module, pack_working_dir
from raysweep.jobs.code.portable import check_portable
from raysweep.jobs.connection import ClusterConnection
from raysweep.jobs.decisions import Decision, Newest, decide
from raysweep.jobs.options import JobOptions
from raysweep.jobs.releases import FIELD as VERSION_FIELD
from raysweep.jobs.request import ENTRYPOINT, FILE, FOLDER, JobRequest, RequestOptions
from raysweep.jobs.same import OUTLINE, STORAGE, Stored, check_job, find_newest, to_metadata
from raysweep.jobs.wire import ENDED, Submission
from raysweep.runs.reading.view import Outcome, RunView
from raysweep.specs import AnyRequest, Kind, RunRequest, SweepSpec, TrainSpec
from raysweep.specs.continuing import Continue
from raysweep.specs.outline import Outline, outline
from raysweep.threads import on_thread

LOG: Final = logging.getLogger("raysweep.jobs")
T = TypeVar("T")
SETTLE_S: Final = 3.0
"""The time after a job's end for which its outcome is looked for, where there may be none."""
LATE_S: Final = 120.0
"""The time for which an outcome is looked for that was written: NFS shows new files after 30 s, or 60."""
READ_S: Final = 60.0
"""The time for the storage to give one answer."""
_SHOWN: Final = 8
LEFT_OUT_LINES: Final = 50
LEFT_OUT_CHARS: Final = 160
_USUAL: Final = frozenset({TOOL_REASON, "excluded", "in an ignore file"})
"""The reasons for leaving out files without use on the cluster."""

Cluster = JobsClient | ClusterConnection | str
Announce = Callable[["RunningJob"], None]
OnUpload = Callable[[str, int, int], None]
"""Told what is done, how many bytes of it are done, and how many there are; 0: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """A sweep, or a training run, on a cluster: all that is needed to follow it from another process.

    Two handles of one job are equal, whichever process submitted it. As JSON: `to_dict`, `from_dict`.
    """

    address: str
    kind: Kind
    run_id: str
    """The sweep's id, or the training run's."""
    key: str
    storage_path: str
    job_id: str
    """Ray's submission id; "" where the run had ended before and nothing was submitted."""
    number: int
    """The number of this job among those of the run, from 1; 0 with no job."""
    how: Literal["submitted", "attached", "finished"] = field(compare=False)
    left_out: tuple[str, ...] = field(default=(), compare=False)
    """The files that were not uploaded, and why: at most 50 lines, what may be missed first."""
    spec: Outline = field(default_factory=dict, compare=False, repr=False)
    """The outline of the spec that was asked for; empty where it is not known."""

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON data."""
        return {**asdict(self), "left_out": list(self.left_out)}

    def view(self) -> RunView:
        """The storage's view of its run. May block; raises StorageError."""
        return RunView(self.kind, self.storage_path, self.run_id)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """The handle that `to_dict` wrote."""
        return cls(**{**fields, "left_out": tuple(fields.get("left_out", ()))})


async def submit_or_attach(
    spec: SweepSpec | TrainSpec, *, to: Cluster, key: str | None = None, options: JobOptions | None = None
) -> RunningJob:
    """See that a sweep (or training run) is on its way, and return the job that runs it.

    Safe to repeat, from anywhere: fifty calls at once submit one job. A run that has an outcome is returned
    as `finished`, without asking the cluster; `wait` then reads it.

    Args:
        spec: What to run. A trainable needs an import path; a local storage path must be one that the cluster
            sees too.
        to: The cluster: an open client, a connection, or an address.
        key: Names the run, as in `run_sweep`.
        options: Code, environment and place of the job; see `JobOptions`.

    Raises:
        SpecError: Something cannot work. SpecChangedError: the key belongs to a run with another spec.
        JobStoppedError: A person stopped it, and `options.resume_cancelled` is not set.
        StorageNotSharedError: Its last job succeeded, and the outcome is not where the spec says.
        ClusterError, StorageError: See `retryable`.
    """
    return await submit(RunRequest.of(spec, key), to=to, options=options)


async def submit(
    request: AnyRequest,
    *,
    to: Cluster,
    options: JobOptions | None = None,
    announce: Announce | None = None,
    on_upload: OnUpload | None = None,
) -> RunningJob:
    """As `submit_or_attach`, for who has a request already.

    Args:
        request: What to run.
        to: The cluster.
        options: As there.
        announce: Called on another thread, with the handle, right before the job is submitted or attached to.
            If it raises, no job is submitted.
        on_upload: Told, on any thread, how far packing and uploading are.
    """
    options = options or JobOptions()
    check_portable(request.spec)
    view = await asyncio.to_thread(RunView, request.run.kind, request.spec.storage_path, request.run.id)
    seen = await asyncio.to_thread(_look, view, request, options.continuing)
    outcome, is_reopening = seen.outcome, seen.is_reopening
    async with open_client(to) as client:
        client.on_upload = on_upload
        if outcome is not None and not is_reopening:
            return _handle(client, request, seen.recorded, "finished")
        newest = find_newest(await client.jobs(), request, seen)
        if newest is not None and not is_reopening:
            # A job that has ended since may have left an outcome since.
            outcome = await settled_outcome(view, within_s=_patience_with(newest))
            if outcome is not None:
                await asyncio.to_thread(view.check_same, request, outcome, continuing=options.continuing)
        decision = decide(
            newest,
            has_outcome=outcome is not None,
            resume_cancelled=options.resume_cancelled,
            is_reopening=is_reopening,
        )
        job = await _carry_out(decision, client, request, view, options, announce)
        if outcome is not None and is_reopening:
            # Who waits from now on waits for the next one.
            await asyncio.to_thread(view.put_aside, outcome)
        return job


def ended_outcome(request: AnyRequest, options: JobOptions) -> Outcome | None:
    """The outcome of a run that has one and does not continue: nothing is to be submitted for it. May block.

    Raises: SpecChangedError, StorageError.
    """
    view = RunView(request.run.kind, request.spec.storage_path, request.run.id)
    seen = _look(view, request, options.continuing)
    return None if seen.is_reopening else seen.outcome


async def settled_outcome(view: RunView, *, within_s: float) -> Outcome | None:
    """The outcome; of a job that has ended it may take a while to be seen. 0: as it is seen now.

    Raises: StorageError.
    """
    loop = asyncio.get_running_loop()
    deadline, pause_s = loop.time() + within_s, 0.5
    while True:
        outcome = await stored(view.outcome, view)
        left_s = deadline - loop.time()
        if outcome is not None or left_s <= 0:
            return outcome
        await asyncio.sleep(min(pause_s, left_s))
        pause_s = min(5.0, pause_s * 1.5)
        await stored(view.look_again, view)


async def stored(call: Callable[[], T], view: RunView) -> T:
    """Await what asks the storage. Raises: StorageUnavailableError where it hangs."""
    try:
        return await on_thread(call, within_s=READ_S)
    except TimeoutError as error:
        said = str(error) or f"has not answered for {READ_S:.0f} s"
        raise StorageUnavailableError(view.uri, said, "see whether its mount hangs") from None


def _patience_with(newest: Newest) -> float:
    if newest.status == "SUCCEEDED" and newest.is_noted:
        return LATE_S
    return SETTLE_S if newest.status in ENDED else 0.0


def job_id_of(run_id: str, number: int) -> str:
    """Ray's submission id of the n-th job of a run."""
    return f"{run_id}.{number}"


def storage_not_shared(job_id: str, uri: str) -> StorageNotSharedError:
    """The error of a job that succeeded where no outcome can be seen."""
    return StorageNotSharedError(
        "storage_path",
        f"job {job_id!r} has written an outcome, but none is seen at {uri}",
        "use a storage_path that means the same here and on the cluster, such as s3://bucket/sweeps; if its "
        "folder was removed there: use another key, or put it back",
    )


def _look(view: RunView, request: AnyRequest, continuing: Continue) -> Stored:
    called_off, outcome, has_spec = view.called_off_job(), view.outcome(), view.has_spec()
    return Stored(
        storage=view.store.url,
        # One that was called off may never have come so far; another of its number would end at once.
        recorded=max(view.newest_job(), called_off),
        called_off=called_off,
        outcome=outcome,
        has_spec=has_spec,
        is_reopening=view.check_same(request, outcome, continuing=continuing),
    )


async def _carry_out(
    decision: Decision,
    client: JobsClient,
    request: AnyRequest,
    view: RunView,
    options: JobOptions,
    announce: Announce | None,
) -> RunningJob:
    job_id = job_id_of(request.run.id, decision.number)
    if decision.do == "return":
        return _handle(client, request, decision.number, "finished")
    if decision.do == "refuse_storage":
        raise storage_not_shared(job_id, view.uri)
    if decision.do == "refuse_stopped":
        raise JobStoppedError(job_id)
    left_out: tuple[str, ...] = ()
    how: Literal["submitted", "attached"] = "submitted" if decision.do == "submit" else "attached"

    async def announced() -> None:
        if announce is not None:
            handle = _handle(client, request, decision.number, how)
            await on_thread(lambda: announce(handle))

    if decision.do == "submit":
        how, left_out = await _submit(decision.number, client, request, view, options, announced)
    else:
        await announced()
    await _note(view, decision.number, job_id, client)
    LOG.info("%s %s: %s job %s", request.run.kind, request.run.id, how, job_id)
    return _handle(client, request, decision.number, how, left_out)


def _trace_variable(request: AnyRequest) -> dict[str, SecretStr]:
    """The span that this submission is in, for the trace of the sweep, where its callbacks make one."""
    callbacks = getattr(request.spec, "callbacks", ())
    if not any(getattr(each.options, "is_traced", False) for each in callbacks):
        return {}
    found = current_traceparent()
    return {TRACEPARENT: SecretStr(found)} if found else {}


async def _submit(
    number: int,
    client: JobsClient,
    request: AnyRequest,
    view: RunView,
    options: JobOptions,
    announced: Callable[[], Awaitable[None]],
) -> tuple[Literal["submitted", "attached"], tuple[str, ...]]:
    env_vars = {**_trace_variable(request), **options.secrets()}
    environment, left_out = await upload_code(client, options)
    package = _request_package(request, options)
    await _upload(client, package)
    environment["py_modules"] = [*environment.get("py_modules", []), package.uri]
    if options.lease_ttl_s is not None:
        # The first renewal: the driver counts from its own start.
        await asyncio.to_thread(view.renew_lease, options.lease_ttl_s)
    submission = _submission(number, request, view.store.url, environment, env_vars, options)
    await announced()
    try:
        await client.submit(submission)
    except JobExistsError:
        # Another process was first, or an earlier try of this request whose answer was lost.
        check_job(await client.info(submission.job_id), request)
        return "attached", left_out
    return "submitted", left_out


async def upload_code(client: JobsClient, options: JobOptions) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Upload `working_dir` and `py_modules` where the cluster has not got them.

    Returns the runtime environment that refers to them, without `env_vars`, and what was left out.
    """
    environment: dict[str, Any] = dict(options.runtime_env)
    left_out: list[LeftOut] = []
    if options.working_dir is not None:
        packer = pack_working_dir
        uri, left = await _code(client, options.working_dir, packer, options, "working_dir")
        environment["working_dir"] = uri
        left_out += left
    modules = []
    for module in options.py_modules:
        uri, left = await _code(client, module, pack_module, options, "py_modules")
        modules.append(uri)
        left_out += left
    if modules:
        environment["py_modules"] = modules
    return environment, _listed(left_out)


def _listed(left_out: Sequence[LeftOut]) -> tuple[str, ...]:
    """A few lines of it: a handle goes through events and databases."""
    ordered = sorted(left_out, key=lambda each: each.why in _USUAL)
    lines = [one_line(str(each), LEFT_OUT_CHARS) for each in ordered[:LEFT_OUT_LINES]]
    if len(ordered) > LEFT_OUT_LINES:
        lines[-1] = f"… and {len(ordered) - LEFT_OUT_LINES + 1} more"
    return tuple(lines)


async def _code(
    client: JobsClient, given: Any, packer: Any, options: JobOptions, field_name: str
) -> tuple[str, tuple[LeftOut, ...]]:
    if isinstance(given, str) and "://" in given:
        return given, ()
    package: Package = await asyncio.to_thread(
        packer, given, excludes=options.excludes, includes=options.includes
    )
    is_new = await _upload(client, package)
    LOG.info(
        "%s %s: %d files, %.1f MiB, %s",
        *(field_name, given, len(package.entries), package.size_bytes / 1024**2),
        "uploaded" if is_new else "on the cluster already",
    )
    _say_left_out(field_name, package.left_out)
    return package.uri, package.left_out


def _say_left_out(field_name: str, left_out: Sequence[LeftOut]) -> None:
    """Log the files that were left out: a line for those made by tools, a warning for what may be missed."""
    missed = [str(each) for each in left_out if each.why not in _USUAL]
    others = len(left_out) - len(missed)
    if missed:
        more = f" and {len(missed) - _SHOWN} more" if len(missed) > _SHOWN else ""
        shown = ", ".join(missed[:_SHOWN]) + more
        LOG.warning("%s: not uploaded: %s; includes= takes what its name keeps out", field_name, shown)
    if others:
        LOG.info("%s: %d more files or folders are ignored, excluded or made by tools", field_name, others)


async def _upload(client: JobsClient, package: Package) -> bool:
    """Upload the package; True if it had to be sent."""
    if await client.has_package(package.uri):
        return False
    size_bytes = package.size_bytes

    def on_read(done: int) -> None:
        client.tell("packing", done, size_bytes)

    await client.upload(package.uri, await asyncio.to_thread(package.to_zip, on_read))
    return True


def _request_package(request: AnyRequest, options: JobOptions) -> Package:
    content = JobRequest(
        kind=request.run.kind,
        key=request.run.key,
        spec=request.spec.to_dict(),
        options=RequestOptions(
            lease_ttl_s=options.lease_ttl_s,
            takeover=options.takeover,
            resume_cancelled=options.resume_cancelled,
            retry=options.retry,
            extend=options.extend,
        ),
    ).to_json()
    return make_package(
        [
            Entry(name=f"{FOLDER}/__init__.py", source=b"", size_bytes=0),
            Entry(name=f"{FOLDER}/{FILE}", source=content, size_bytes=len(content)),
        ]
    )


def _submission(
    number: int,
    request: AnyRequest,
    storage: str,
    environment: Mapping[str, Any],
    env_vars: Mapping[str, SecretStr],
    options: JobOptions,
) -> Submission:
    from raysweep.version import __version__

    return Submission(
        job_id=job_id_of(request.run.id, number),
        # Its own id, by which its driver knows the requests that name it.
        entrypoint=f"{ENTRYPOINT} {job_id_of(request.run.id, number)}",
        runtime_env=environment,
        env_vars=env_vars,
        metadata={
            **options.metadata,
            "raysweep_sweep_id": request.run.id,
            "raysweep_key": request.run.key[:1000],
            "raysweep_kind": request.run.kind,
            VERSION_FIELD: __version__,
            "raysweep_attempt": str(number),
            STORAGE: storage,
            OUTLINE: to_metadata(request),
        },
        num_cpus=options.driver_cpus,
        memory_bytes=options.driver_memory_bytes,
        resources=options.driver_resources,
        label_selector=options.driver_labels,
    )


async def _note(view: RunView, number: int, job_id: str, client: JobsClient) -> None:
    try:
        await asyncio.to_thread(view.note_job, number, job_id, client.connection.address)
    except StorageError as error:
        # The job runs. Without the note, its number is given again if the head is lost.
        LOG.warning("job %s could not be noted in the storage: %s", job_id, error)


def _handle(
    client: JobsClient,
    request: AnyRequest,
    number: int,
    how: Literal["submitted", "attached", "finished"],
    left_out: tuple[str, ...] = (),
) -> RunningJob:
    return RunningJob(
        address=client.connection.address,
        kind=request.run.kind,
        run_id=request.run.id,
        key=request.run.key,
        storage_path=request.spec.storage_path,
        job_id=job_id_of(request.run.id, number) if number else "",
        number=number,
        how=how,
        left_out=left_out,
        spec=outline(request.spec),
    )
