"""`raysweep train`."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text

from raysweep.cli.consoles import clean_stdout, make_console, print_encoded, print_facts
from raysweep.cli.exit_codes import DONE, say_error
from raysweep.cli.job_messages import JobHow, has_jobs_api
from raysweep.cli.lookup import open_sweep
from raysweep.cli.spec_files import located, read_config, read_spec
from raysweep.errors import SpecError, TrainingFailedError
from raysweep.live import LiveTraining, logged_to
from raysweep.outcome import TrainOutcome
from raysweep.outcome.showing.formatting import show_config, show_duration
from raysweep.specs import RunRequest, TrainSpec

_LIMITS = {
    "deadline": "deadline",
    "time_budget": "time_budget_s",
    "below_prediction": "below_prediction",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """Options of the command line about the spec."""

    path: str
    settings: tuple[str, ...]
    storage: str | None
    config: str | None
    from_sweep: str | None


def plan(asked: TrainOptions) -> TrainSpec:
    """The spec to train: a sweep's best config, under the spec's own, under `--config`.

    Raises:
        SpecError: The file, a setting or the config cannot be used, or the sweep has not ended.
        SweepNotFoundError: There is no such sweep where the run is to be stored.
        SweepFailedError: The sweep has no best trial.
    """
    spec = read_spec(TrainSpec, asked.path, settings=asked.settings, storage=asked.storage)
    if asked.config is not None:
        spec = spec.replace(config={**spec.config, **read_config(asked.config)})
    if asked.from_sweep is not None:
        spec = _with_best(spec, asked.from_sweep)
    return located(spec)


def run(asked: TrainOptions, *, key: str | None, address: str | None, is_json: bool, job: JobHow) -> int:
    """Train, show how it goes and what came out; returns the exit code.

    Without a key the spec itself is the key, as with sweeps: the same command continues with the same run.
    """
    request = RunRequest.of(plan(asked), key)
    if has_jobs_api(address, job):
        from raysweep.cli import remote

        found = remote.run(request, address or "", job, is_json=is_json)
        return show_outcome(found, is_json=is_json) if isinstance(found, TrainOutcome) else DONE
    from raysweep.cluster.placing import check_training

    check_training(address)
    from raysweep.training import run_training

    console = make_console(is_stderr=is_json)
    try:
        live = LiveTraining(request.run.name, console)
        with live as line, logged_to(line.note), clean_stdout(is_json=is_json):
            outcome = run_training(request, address=address, on_progress=line)
    except TrainingFailedError as error:
        if not is_json:
            raise
        print_encoded(error.outcome.to_json())
        return say_error(str(error), error.exit_code)
    return show_outcome(outcome, is_json=is_json)


def show_outcome(outcome: TrainOutcome, *, is_json: bool) -> int:
    """Show what came out; returns the exit code."""
    _summarise(outcome, is_json=is_json)
    if is_json:
        print_encoded(outcome.to_json())
    return DONE


def _with_best(spec: TrainSpec, name: str) -> TrainSpec:
    from raysweep.training.from_outcome import train_spec_for

    folder = open_sweep(name, spec.storage_path)
    outcome = folder.read_outcome()
    if outcome is None:
        raise SpecError(
            "--from-sweep", f"sweep {folder.sweep_id!r} has not ended", "wait for it, or resume it first"
        )
    return train_spec_for(spec, outcome, is_warm=True)


def _summarise(outcome: TrainOutcome, *, is_json: bool) -> None:
    console = make_console(is_stderr=is_json)
    resumed = " (resumed)" if outcome.resumed else ""
    limit = f", ended by stop.{_LIMITS[outcome.ended_by]}" if outcome.ended_by else ""
    console.print(Text.assemble((outcome.status, "bold green"), f" {outcome.run_id}{resumed}{limit}"))
    print_facts(
        console,
        ("metrics", show_config(outcome.metrics)),
        ("config", show_config(outcome.config)),
        *([("predicted", str(outcome.predicted))] if outcome.predicted is not None else []),
        *([("from", f"{source.sweep} {source.trial_id}")] if (source := outcome.source) else []),
        ("took", show_duration(outcome.took_s)),
        ("model", outcome.model_line),
        ("outcome", f"{outcome.uri}/train_outcome.json"),
    )
