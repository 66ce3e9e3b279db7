"""Declares the commands and their options.

Each command returns a task that runs after typer has finished, because typer handles interrupts in its own
way. A task imports its code when it runs: `--help` must be quick.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Optional

import typer

from raysweep.cli import champions, stored_runs
from raysweep.cli.help_groups import EXIT_CODES, GroupedCommands, add_examples
from raysweep.cli.options import (
    Address,
    AsJson,
    BudgetKey,
    Driver,
    EarlierNights,
    Env,
    FirstRow,
    JobsAddress,
    Key,
    Lease,
    NumCpus,
    Place,
    PlannedCluster,
    PlanToken,
    ProgramArguments,
    ResumeCancelled,
    Settings,
    SpecFile,
    SpecKind,
    StepSeconds,
    Storage,
    StoredAt,
    SweepName,
    Takeover,
    Task,
    TuneProgram,
    WorkingDir,
    grouped,
    with_budget_key,
)
from raysweep.cli.run_names import by_name

app = typer.Typer(
    cls=GroupedCommands,
    help="Hyperparameter sweeps as pipeline steps on Ray.",
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        from raysweep.version import __version__

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
def init(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="[FOLDER]", help="The folder; created if it is missing. Default: this folder."
        ),
    ] = ".",
    as_json: AsJson = False,
) -> Task:
    """Write a first project that runs as it is.

    A trainable, a spec, an Airflow DAG and a Prefect flow.
    Nothing is overwritten.
    """
    from raysweep.cli.commands.init import write_project

    return partial(write_project, folder, as_json)


@app.command()
@grouped
def sweep(
    spec: SpecFile,
    place: Place,
    driver: Driver,
    key: Key = None,
    storage: Storage = None,
    takeover: Takeover = False,
    num_cpus: NumCpus = None,
    settings: Settings = None,
    lease: Lease = None,
    resume_cancelled: ResumeCancelled = False,
    token: PlanToken = None,
    tune: TuneProgram = False,
    arguments: ProgramArguments = None,
    budget_key: BudgetKey = None,
) -> Task:
    """Run a sweep, or resume it.

    The same name and key is the same sweep: one that has ended is returned at once. With --tune, SPEC is a
    program that calls Ray Tune, and its sweeps run here.
    """
    from raysweep.cli.commands.running.sweep import run_file, run_tune

    if tune:
        if settings or resume_cancelled or lease is not None or budget_key is not None:
            problem = "--tune cannot be combined with --set, --lease, --resume-cancelled or --budget-key"
            raise typer.BadParameter(problem)
        how, job = place.how(num_cpus, takeover=takeover), place.job(driver)
        return partial(run_tune, spec, arguments or (), storage, key, how, job)
    if arguments:
        raise typer.BadParameter(f"{arguments[0]!r} is an argument of a program, which requires --tune")

    job = place.job(driver, lease_s=lease, resume_cancelled=resume_cancelled, takeover=takeover)
    how = place.how(num_cpus, takeover=takeover)
    return partial(run_file, spec, storage, with_budget_key(settings, budget_key), key, how, job, token)


@app.command()
@by_name
@grouped
def resume(
    name: SweepName,
    place: Place,
    storage: StoredAt = None,
    takeover: Takeover = False,
    num_cpus: NumCpus = None,
    resume_cancelled: ResumeCancelled = False,
) -> Task:
    """Resume a stored sweep.

    Its spec and key are those that it was started with.
    """
    from raysweep.cli.commands.running.sweep import resume

    job = place.job(resume_cancelled=resume_cancelled, takeover=takeover)
    return partial(resume, name, storage, place.how(num_cpus, takeover=takeover), job)


@app.command()
@by_name
@grouped
def retry(
    name: SweepName,
    place: Place,
    failed: Annotated[bool, typer.Option("--failed", help="All trials that failed: the default.")] = False,
    trials: Annotated[
        Optional[list[int]],  # noqa: UP045
        typer.Option("--trial", metavar="N", min=0, help="This failed trial. Repeatable."),
    ] = None,
    storage: StoredAt = None,
    num_cpus: NumCpus = None,
) -> Task:
    """Run the failed trials of a sweep again.

    They resume from their checkpoints, with a new budget of failures. Where the sweep failed, what was cut
    runs too, and the search continues.
    """
    from raysweep.cli.commands.running import continuing

    if failed and trials:
        raise typer.BadParameter("give --failed or --trial, not both")
    return partial(
        continuing.retry, name, storage, place.how(num_cpus), place.job(retry=tuple(trials or ()) or "failed")
    )


@app.command()
@by_name
@grouped
def extend(
    name: SweepName,
    place: Place,
    max_t: Annotated[float, typer.Option("--max-t", metavar="T", help="The new limit, in all.")],
    top: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--top", metavar="N", min=1, help="The N best trials."),
    ] = None,
    trials: Annotated[
        Optional[list[int]],  # noqa: UP045
        typer.Option("--trial", metavar="N", min=0, help="Or this trial. Repeatable."),
    ] = None,
    storage: StoredAt = None,
    num_cpus: NumCpus = None,
) -> Task:
    """Run the best trials of a completed sweep for longer.

    They start from their checkpoints, and the scheduler stops none of them. T counts as the scheduler's max_t
    does: reports, or its time_attr.
    """
    from raysweep.cli.commands.running import continuing
    from raysweep.specs.continuing import Extension

    wanted = Extension(max_t=max_t, top=top, trials=tuple(trials or ()))
    return partial(continuing.extend, name, storage, place.how(num_cpus), place.job(extend=wanted))


@app.command()
@by_name
@grouped
def restart(name: SweepName, place: Place, storage: StoredAt = None, num_cpus: NumCpus = None) -> Task:
    """Put a sweep aside, and begin anew with its spec and key.

    What is stored is moved to the folder `aside` of the storage path; nothing is overwritten.
    """
    from raysweep.cli.commands.running import continuing

    return partial(continuing.restart, name, storage, place.how(num_cpus), place.job())


@app.command()
@by_name
def rm(
    name: SweepName,
    storage: StoredAt = None,
    is_sure: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> Task:
    """Remove a sweep with its journal and checkpoints.

    It asks first, and refuses while the sweep runs.
    """
    from raysweep.cli.commands.running import continuing

    return partial(continuing.rm, name, storage, is_sure=is_sure, is_json=as_json)


@app.command()
@grouped
def train(
    spec: SpecFile,
    place: Place,
    driver: Driver,
    key: Key = None,
    storage: Storage = None,
    config: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="JSON", help="Values to put over the spec's config."),
    ] = None,
    from_sweep: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="SWEEP", help="Put the best config of a sweep under it, and start from its checkpoint."
        ),
    ] = None,
    settings: Settings = None,
    lease: Lease = None,
    resume_cancelled: ResumeCancelled = False,
) -> Task:
    """Train one config at full scale.

    The same name and key is the same run: it resumes where it was; one that has ended is returned at once.
    """
    from raysweep.cli.commands.running.train import TrainOptions, run

    asked = TrainOptions(
        path=spec, settings=tuple(settings or ()), storage=storage, config=config, from_sweep=from_sweep
    )
    job = place.job(driver, lease_s=lease, resume_cancelled=resume_cancelled)
    return partial(run, asked, key=key, address=place.where, is_json=place.as_json, job=job)


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
    from raysweep.cli.commands.running.following import attach

    return partial(attach, name, storage, address, lease, as_json)


@app.command()
@by_name
def cancel(
    name: SweepName,
    storage: StoredAt = None,
    address: JobsAddress = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="The reason, stored in the outcome.")] = "",
    as_json: AsJson = False,
) -> Task:
    """Cancel a sweep, wherever it runs; its trials end.

    With an address: a job of that cluster, which may be a training run too.
    """
    from raysweep.cli.commands.running.following import cancel

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
        typer.Option(min=1, metavar="N", help="The attempt of the trial. Default: the newest with a log."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print what comes, until the attempt or the job has ended.")
    ] = False,
    storage: StoredAt = None,
    address: JobsAddress = None,
    as_json: AsJson = False,
    start: FirstRow = 0,
) -> Task:
    """Print what a trial wrote.

    Without a trial: list the logs that are stored; with an address, print what the driver of its newest job
    wrote.
    """
    from raysweep.cli.commands.logs import Wanted, show_logs

    wanted = Wanted(trial=trial, attempt=attempt, is_followed=follow, is_json=as_json, start=start)
    return partial(show_logs, name, storage, address, wanted)


@app.command()
def clusters(
    manifest: Annotated[str, typer.Argument(metavar="MANIFEST", help="The manifest: names the namespace.")],
    remove: Annotated[bool, typer.Option("--remove", help="Delete clusters that no run uses.")] = False,
    as_json: AsJson = False,
) -> Task:
    """List the clusters that runs brought up on Kubernetes.

    It says which are left over.
    """
    from raysweep.cli.commands.clusters import show

    return partial(show, manifest, is_removing=remove, is_json=as_json)


@app.command()
def plan(
    spec: SpecFile,
    key: Key = None,
    storage: Storage = None,
    address: Address = None,
    cluster: PlannedCluster = None,
    step_seconds: StepSeconds = None,
    nights: EarlierNights = None,
    as_json: AsJson = False,
    settings: Settings = None,
    budget_key: BudgetKey = None,
) -> Task:
    """Show what a sweep or pipeline would run; start nothing.

    It says how much runs at once, and until when.
    The trainable is imported, unless the address is that of a Jobs API. When it ends is played on the real
    scheduler, with the times of earlier nights of its name.

    Example: raysweep plan nightly.yaml --cluster 8xH100,2xCPU64 --nights 5
    """
    from raysweep.cli.commands.planning.plan import Asked, show_plan

    asked = Asked(address=address, cluster=cluster, step_s=step_seconds, nights=nights)
    return partial(show_plan, spec, storage, with_budget_key(settings, budget_key), key, asked, as_json)


@app.command()
@grouped
def doctor(
    driver: Driver,
    address: Annotated[str, typer.Option(metavar="URL", help="The cluster's Jobs API: http://head:8265.")],
    spec: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="[SPEC]", help="The spec to run there. Default: look at the cluster only."),
    ] = None,
    storage: Storage = None,
    as_json: AsJson = False,
    kind: Annotated[SpecKind, typer.Option(help="The kind of SPEC.")] = SpecKind.sweep,
    working_dir: WorkingDir = None,
    env: Env = None,
) -> Task:
    """Check that a sweep would run on a cluster.

    A small job does the checks there; it runs no trial. Exit code 1 where a check failed.
    """
    from raysweep.cli.commands.doctor import show_checks
    from raysweep.cli.job_messages import job_how

    job = job_how(working_dir=working_dir, env=env, **driver.options)
    return partial(show_checks, address, spec, storage, kind.value, job, as_json)


@app.command()
@grouped
def pipeline(
    spec: SpecFile,
    place: Place,
    driver: Driver,
    key: Key = None,
    storage: Storage = None,
    num_cpus: NumCpus = None,
    settings: Settings = None,
    lease: Lease = None,
) -> Task:
    """Run a pipeline: sweep, gate, train, judge.

    The sweep's best configs run again beside the champion of earlier runs; a better one is trained. With
    --detach the first step that has not ended is submitted; the same command again continues.
    """
    from raysweep.cli.commands.running.pipeline import Asked, run

    asked = Asked(path=spec, key=key, storage=storage, settings=tuple(settings or ()))
    return partial(run, asked, place.how(num_cpus), place.job(driver, lease_s=lease))


@app.command()
@grouped
def judge(
    spec: SpecFile,
    place: Place,
    driver: Driver,
    key: Annotated[str, typer.Option(metavar="KEY", help="The night whose model is judged.")],
    storage: Storage = None,
    num_cpus: NumCpus = None,
) -> Task:
    """Judge the model that a night of a pipeline has trained.

    It is measured beside the released model, by the judge of the file; it is released if it passes.
    """
    from raysweep.cli.commands.running.judge import run

    return partial(run, spec, key, storage, place.how(num_cpus), place.job(driver))


@app.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
def emit(
    arguments: Annotated[Optional[list[str]], typer.Argument(metavar="NAME=VALUE …")] = None,  # noqa: UP045
) -> Task:
    """Report metrics, in a program that a trial runs.

    `raysweep emit loss=0.3 step=2 [--checkpoint DIR]`; it is listed here and runs without this module.
    """
    from raysweep.programs.emit import main

    return partial(main, arguments or [])


app.add_typer(stored_runs.app)
app.add_typer(champions.app)
add_examples(app, stored_runs.app, champions.app)
