"""The commands and their options.

Each returns what is to be done, and typer is through before that is called: it has its own ideas of what an
interrupt means. What is done is imported when it is wanted: `--help` must be quick.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Annotated, Optional

import typer

from raysweep.cli.naming import by_name

Task = Callable[[], int]

app = typer.Typer(
    help="Hyperparameter sweeps as pipeline steps on Ray.",
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Key = Annotated[
    Optional[str],  # noqa: UP045  typer reads the annotation at run time
    typer.Option(
        metavar="KEY",
        help="Names the run: the same name and key is the same run. Default: the spec itself.",
    ),
]
Storage = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(metavar="URL", help="Where sweeps are stored, in place of the spec's storage_path."),
]
StoredAt = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--storage", metavar="URL", help="Where sweeps are stored. Default: ~/raysweep."),
]
Address = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="ADDRESS",
        help='A Ray cluster: http://head:8265 (its Jobs API), "auto" or host:port. Default: one of our own.',
    ),
]
JobsAddress = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(metavar="URL", help="The Jobs API of the cluster that runs it: http://head:8265."),
]
WorkingDir = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(metavar="FOLDER", help="Send this folder; the job runs in it."),
]
PyModules = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--py-module", metavar="PATH", help="Send this package or file. Repeatable."),
]
Env = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        metavar="NAME[=VALUE]",
        help="Set a variable of driver and trials; without a value, to what it is here. Repeatable.",
    ),
]
Lease = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(metavar="SECONDS", help="End it, resumably, once it has had no follower for SECONDS."),
]
Detach = Annotated[bool, typer.Option("--detach", help="Submit it and do not wait.")]
ResumeCancelled = Annotated[
    bool, typer.Option("--resume-cancelled", help="Go on with one that was cancelled.")
]
DriverResources = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--driver-resource", metavar="NAME=N", help="What the driver holds: CPU=1, memory=2e9. Repeatable."
    ),
]
DriverLabels = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--driver-label", metavar="NAME=VALUE", help="A label of the driver's node. Repeatable."),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="JSON, and nothing else, on standard output; the rest on stderr.")
]
SpecFile = Annotated[str, typer.Argument(metavar="SPEC", help="A .yaml or .json file.")]
SweepName = Annotated[
    str, typer.Argument(metavar="SWEEP_ID", help="An id, its beginning, or the folder's URI.")
]
Takeover = Annotated[
    bool, typer.Option("--takeover", help="Take the sweep from a controller that seems to live.")
]
NumCpus = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(min=1, metavar="N", help="CPUs of a Ray of our own. Default: the machine's."),
]
Settings = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--set", metavar="PATH=VALUE", help="Change a field of the spec: num_samples=10. Repeatable."
    ),
]


class SpecKind(StrEnum):
    """The documents that have a schema."""

    sweep = "sweep"
    train = "train"


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        from raysweep import __version__

        typer.echo(f"raysweep {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def sweep(
    spec: SpecFile,
    key: Key = None,
    storage: Storage = None,
    address: Address = None,
    as_json: AsJson = False,
    takeover: Takeover = False,
    num_cpus: NumCpus = None,
    settings: Settings = None,
    working_dir: WorkingDir = None,
    py_modules: PyModules = None,
    env: Env = None,
    lease: Lease = None,
    detach: Detach = False,
    resume_cancelled: ResumeCancelled = False,
    driver_resources: DriverResources = None,
    driver_labels: DriverLabels = None,
) -> Task:
    """Run a sweep, or go on with it.

    The same name and key is the same sweep: one that has ended is returned at once.
    """
    from raysweep.cli.jobhow import job_how
    from raysweep.cli.sweep import How, run_file

    how = How(address=address, is_json=as_json, takeover=takeover, num_cpus=num_cpus)
    job = job_how(
        working_dir=working_dir,
        py_modules=py_modules,
        env=env,
        lease_s=lease,
        detach=detach,
        resume_cancelled=resume_cancelled,
        driver_resources=driver_resources,
        driver_labels=driver_labels,
        takeover=takeover,
    )
    return partial(run_file, spec, storage, settings or (), key, how, job)


@app.command()
@by_name
def resume(
    name: SweepName,
    storage: StoredAt = None,
    address: Address = None,
    as_json: AsJson = False,
    takeover: Takeover = False,
    num_cpus: NumCpus = None,
    working_dir: WorkingDir = None,
    env: Env = None,
    detach: Detach = False,
    resume_cancelled: ResumeCancelled = False,
) -> Task:
    """Go on with a stored sweep.

    Its spec and key are those that it was started with.
    """
    from raysweep.cli.jobhow import job_how
    from raysweep.cli.sweep import How, resume

    how = How(address=address, is_json=as_json, takeover=takeover, num_cpus=num_cpus)
    job = job_how(
        working_dir=working_dir,
        env=env,
        detach=detach,
        resume_cancelled=resume_cancelled,
        takeover=takeover,
    )
    return partial(resume, name, storage, how, job)


@app.command()
@by_name
def retry(
    name: SweepName,
    failed: Annotated[bool, typer.Option("--failed", help="All trials that failed: the default.")] = False,
    trials: Annotated[
        Optional[list[int]],  # noqa: UP045
        typer.Option("--trial", metavar="N", min=0, help="This failed trial. Repeatable."),
    ] = None,
    storage: StoredAt = None,
    address: Address = None,
    as_json: AsJson = False,
    num_cpus: NumCpus = None,
    working_dir: WorkingDir = None,
    env: Env = None,
    detach: Detach = False,
) -> Task:
    """Run the failed trials of a sweep again.

    They resume from their checkpoints, with a new budget of failures. Where the sweep failed, what was cut
    runs too, and the search goes on.
    """
    from raysweep.cli import again
    from raysweep.cli.jobhow import job_how
    from raysweep.cli.sweep import How

    if failed and trials:
        raise typer.BadParameter("give --failed or --trial, not both")
    how = How(address=address, is_json=as_json, takeover=False, num_cpus=num_cpus)
    wanted = tuple(trials) if trials else "failed"
    job = job_how(working_dir=working_dir, env=env, detach=detach, retry=wanted)  # type: ignore[arg-type]
    return partial(again.retry, name, storage, how, job)


@app.command()
@by_name
def extend(
    name: SweepName,
    max_t: Annotated[float, typer.Option("--max-t", metavar="T", help="How far they go, in all.")],
    top: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--top", metavar="N", min=1, help="The N best trials."),
    ] = None,
    trials: Annotated[
        Optional[list[int]],  # noqa: UP045
        typer.Option("--trial", metavar="N", min=0, help="Or this trial. Repeatable."),
    ] = None,
    storage: StoredAt = None,
    address: Address = None,
    as_json: AsJson = False,
    num_cpus: NumCpus = None,
    working_dir: WorkingDir = None,
    env: Env = None,
    detach: Detach = False,
) -> Task:
    """Let the best trials of a completed sweep go further, from their checkpoints.

    T counts as the scheduler's max_t does: reports, or its time_attr. The scheduler stops none of them.
    """
    from raysweep.cli import again
    from raysweep.cli.jobhow import job_how
    from raysweep.cli.sweep import How
    from raysweep.spec.again import Extension

    how = How(address=address, is_json=as_json, takeover=False, num_cpus=num_cpus)
    wanted = Extension(max_t=max_t, top=top, trials=tuple(trials or ()))
    job = job_how(working_dir=working_dir, env=env, detach=detach, extend=wanted)
    return partial(again.extend, name, storage, how, job)


@app.command()
@by_name
def restart(
    name: SweepName,
    storage: StoredAt = None,
    address: Address = None,
    as_json: AsJson = False,
    num_cpus: NumCpus = None,
    working_dir: WorkingDir = None,
    env: Env = None,
    detach: Detach = False,
) -> Task:
    """Put a sweep aside, and begin anew with its spec and key.

    What is stored is moved to the folder `aside` of the storage path; nothing is overwritten.
    """
    from raysweep.cli import again
    from raysweep.cli.jobhow import job_how
    from raysweep.cli.sweep import How

    how = How(address=address, is_json=as_json, takeover=False, num_cpus=num_cpus)
    job = job_how(working_dir=working_dir, env=env, detach=detach)
    return partial(again.restart, name, storage, how, job)


@app.command()
@by_name
def rm(
    name: SweepName,
    storage: StoredAt = None,
    is_sure: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> Task:
    """Remove a sweep, with its journal and checkpoints, after a question. Not while it runs."""
    from raysweep.cli import again

    return partial(again.rm, name, storage, is_sure=is_sure, is_json=as_json)


@app.command()
def train(
    spec: SpecFile,
    key: Key = None,
    storage: Storage = None,
    address: Address = None,
    as_json: AsJson = False,
    config: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="JSON", help="Values to put over the spec's config."),
    ] = None,
    from_sweep: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="SWEEP_ID", help="Put the best config of a sweep under it, and start from its checkpoint."
        ),
    ] = None,
    settings: Settings = None,
    working_dir: WorkingDir = None,
    py_modules: PyModules = None,
    env: Env = None,
    lease: Lease = None,
    detach: Detach = False,
    resume_cancelled: ResumeCancelled = False,
    driver_resources: DriverResources = None,
    driver_labels: DriverLabels = None,
) -> Task:
    """Train one config at full scale.

    The same name and key is the same run: it goes on where it was; one that has ended is returned at once.
    """
    from raysweep.cli.jobhow import job_how
    from raysweep.cli.train import TrainOptions, run

    asked = TrainOptions(
        path=spec, settings=tuple(settings or ()), storage=storage, config=config, from_sweep=from_sweep
    )
    job = job_how(
        working_dir=working_dir,
        py_modules=py_modules,
        env=env,
        lease_s=lease,
        detach=detach,
        resume_cancelled=resume_cancelled,
        driver_resources=driver_resources,
        driver_labels=driver_labels,
    )
    return partial(run, asked, key=key, address=address, is_json=as_json, job=job)


@app.command()
@by_name
def attach(
    name: SweepName,
    storage: StoredAt = None,
    address: JobsAddress = None,
    lease: Lease = None,
    as_json: AsJson = False,
) -> Task:
    """Follow a sweep that runs elsewhere to its end.

    Nothing is submitted. Ctrl-C leaves it running.
    """
    from raysweep.cli.following import attach

    return partial(attach, name, storage, address, lease, as_json)


@app.command()
@by_name
def cancel(
    name: SweepName,
    storage: StoredAt = None,
    address: JobsAddress = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; the outcome says it.")] = "",
    as_json: AsJson = False,
) -> Task:
    """Cancel a sweep, wherever it runs; its trials end.

    With an address: a job of that cluster, which may be a training run too.
    """
    from raysweep.cli.following import cancel

    return partial(cancel, name, storage, address, reason, as_json)


@app.command()
@by_name
def logs(
    name: SweepName,
    trial: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--trial", "-t", min=0, metavar="N", help="Print what this trial wrote."),
    ] = None,
    attempt: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, metavar="N", help="Which attempt of the trial. Default: the newest with a log."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print what comes, until the attempt or the job has ended.")
    ] = False,
    storage: StoredAt = None,
    address: JobsAddress = None,
    as_json: AsJson = False,
) -> Task:
    """Print what a trial wrote.

    Without a trial: list the logs that are stored; with an address, print what the driver of its newest job
    wrote.
    """
    from raysweep.cli.logs import Wanted, show_logs

    wanted = Wanted(trial=trial, attempt=attempt, is_followed=follow, is_json=as_json)
    return partial(show_logs, name, storage, address, wanted)


@app.command()
def plan(
    spec: SpecFile,
    key: Key = None,
    storage: Storage = None,
    address: Address = None,
    as_json: AsJson = False,
    settings: Settings = None,
) -> Task:
    """Show what a sweep would run, and how much of it at once. Nothing is started."""
    from raysweep.cli.plan import show_plan

    return partial(show_plan, spec, storage, settings or (), key, address, as_json)


@app.command()
def doctor(
    address: Annotated[str, typer.Option(metavar="URL", help="The cluster's Jobs API: http://head:8265.")],
    spec: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="[SPEC]", help="What is to run there. Default: look at the cluster only."),
    ] = None,
    storage: Storage = None,
    as_json: AsJson = False,
    kind: Annotated[SpecKind, typer.Option(help="What SPEC is.")] = SpecKind.sweep,
    working_dir: WorkingDir = None,
    py_modules: PyModules = None,
    env: Env = None,
    driver_resources: DriverResources = None,
    driver_labels: DriverLabels = None,
) -> Task:
    """Check that a sweep would run on a cluster.

    A small job does the checks there; it runs no trial. Exit code 1 where a check failed.
    """
    from raysweep.cli.doctor import show_checks
    from raysweep.cli.jobhow import job_how

    job = job_how(
        working_dir=working_dir,
        py_modules=py_modules,
        env=env,
        driver_resources=driver_resources,
        driver_labels=driver_labels,
    )
    return partial(show_checks, address, spec, storage, kind.value, job, as_json)


@app.command()
def pipeline(
    spec: SpecFile,
    key: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="KEY", help="Names the run: the same key resumes it. Default: today's date."),
    ] = None,
    storage: Storage = None,
    address: Address = None,
    as_json: AsJson = False,
) -> Task:
    """Run a pipeline: sweep, gate, train.

    The sweep's best configs run again beside the champion of earlier runs; a better one is trained.
    """
    from raysweep.cli.pipeline import run

    return partial(run, spec, key=key, storage=storage, address=address, is_json=as_json)


@app.command()
@by_name
def status(
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="[SWEEP_ID]", help="Default: list all sweeps."),
    ] = None,
    storage: StoredAt = None,
    as_json: AsJson = False,
) -> Task:
    """Show how a sweep is doing, or list the sweeps."""
    from raysweep.cli import status

    if name is None:
        return partial(status.show_list, storage, as_json)
    return partial(status.show, name, storage, as_json)


@app.command()
@by_name
def best(name: SweepName, storage: StoredAt = None, as_json: AsJson = False) -> Task:
    """Show the best trial: its config, metrics and checkpoint."""
    from raysweep.cli.results import show_best

    return partial(show_best, name, storage, as_json)


@app.command()
@by_name
def trials(
    name: SweepName,
    storage: StoredAt = None,
    attempts: Annotated[
        bool, typer.Option("--attempts", help="Every attempt: how it ended, on which node, its error.")
    ] = False,
    history: Annotated[bool, typer.Option("--history", help="Every report, from the journal.")] = False,
    sort: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="NAME",
            help="Sort by a metric, a parameter, time, reports, state, …; -NAME: the other way round. "
            "The sweep's metric comes best first.",
        ),
    ] = None,
    top: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, metavar="N", help="The first N only; without --sort, the best N."),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV, with every metric and parameter.")] = False,
    as_json: AsJson = False,
) -> Task:
    """List the trials of a sweep."""
    from raysweep.cli.results import View, show_trials

    # Every attempt is in the JSON anyway.
    view = View(sort=sort, top=top, is_csv=as_csv, is_json=as_json, attempts=attempts, history=history)
    return partial(show_trials, name, storage, view)


@app.command()
@by_name
def checkpoints(name: SweepName, storage: StoredAt = None, as_json: AsJson = False) -> Task:
    """List the checkpoints that a sweep keeps: their sizes, what each was the first to store, and why."""
    from raysweep.cli.checkpoints import show_checkpoints

    return partial(show_checkpoints, name, storage, as_json)


@app.command()
def pull(
    uri: Annotated[str, typer.Argument(metavar="URI", help="A checkpoint's, as `best` shows it.")],
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="A new or an empty one.")],
    as_json: AsJson = False,
) -> Task:
    """Fetch a checkpoint into a folder, verified: it appears whole or not at all."""
    from raysweep.cli import checkpoints

    return partial(checkpoints.pull, uri, folder, as_json)


@app.command()
@by_name
def gc(
    name: SweepName,
    storage: StoredAt = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
    as_json: AsJson = False,
) -> Task:
    """Delete what no kept checkpoint refers to: what killed workers left. Not while the sweep runs."""
    from raysweep.cli import checkpoints

    return partial(checkpoints.collect, name, storage, dry_run, as_json)


@app.command()
@by_name
def verify(
    name: SweepName,
    storage: StoredAt = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Compare the sizes of checkpoint files, and do not read them.")
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete what nothing refers to. Not while the sweep runs.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Make anew what the journal can give. Not while the sweep runs.")
    ] = False,
    as_json: AsJson = False,
) -> Task:
    """Check everything that is stored of a sweep: exit code 0 if it is sound, 1 if something is damaged."""
    from raysweep.cli.verify import Wanted, run_verify

    wanted = Wanted(is_quick=quick, is_pruned=prune, is_repaired=repair, is_json=as_json)
    return partial(run_verify, name, storage, wanted)


@app.command()
def schema(kind: Annotated[SpecKind, typer.Argument(help="Which document.")] = SpecKind.sweep) -> Task:
    """Print the JSON Schema of a spec."""
    from raysweep.cli.schema import show_schema

    return partial(show_schema, kind.value)
