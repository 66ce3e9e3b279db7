"""`raysweep judge`."""

from __future__ import annotations

from raysweep.cli.commands.running.sweep import How
from raysweep.cli.consoles import clean_stdout, make_console, print_json
from raysweep.cli.exit_codes import DONE, FAILED
from raysweep.cli.job_messages import JobHow, has_jobs_api
from raysweep.cli.spec_files import read_pipeline
from raysweep.errors import SpecError
from raysweep.live import LiveTable, logged_to
from raysweep.outcome import SweepOutcome, TrainOutcome
from raysweep.outcome.judgement import Judgement
from raysweep.runs.across_runs.verdicts import newest_verdict
from raysweep.runs.reading.view import RunView
from raysweep.specs import RunRequest
from raysweep.specs.pipeline import PipelineSpec
from raysweep.storage.objects.opening import open_store


def run(path: str, key: str, storage: str | None, how: How, job: JobHow) -> int:
    """Judge the model of a night that a pipeline has trained; returns the exit code.

    Raises:
        SpecError: The file has no judge, or the night no model.
    """
    spec = read_pipeline(path, settings=(), storage=storage)
    with (
        LiveTable(make_console(is_stderr=how.is_json)) as table,
        logged_to(table.note),
        clean_stdout(is_json=how.is_json),
    ):
        judgement = _judge(spec, key, how, job, table)
    if how.is_json:
        print_json(judgement.model_dump(mode="json"))
    else:
        make_console().print(judgement.why, soft_wrap=True)
    return DONE if judgement.is_passed else FAILED


def _judge(spec: PipelineSpec, key: str, how: How, job: JobHow, table: LiveTable) -> Judgement:
    from raysweep.pipeline import run_judge, training_request, with_gate
    from raysweep.pipeline.night_end import night_end
    from raysweep.pipeline.registering import register_night

    if spec.judge is None or spec.train is None:
        raise SpecError("judge", "is not in the pipeline", "add judge to the file")
    request = RunRequest.of(spec.sweep, key)
    outcome = RunView("sweep", spec.sweep.storage_path, request.run.id).outcome()
    verdict = newest_verdict(open_store(spec.sweep.storage_path), request.run.id)
    if not isinstance(outcome, SweepOutcome) or verdict is None:
        raise SpecError("--key", f"night {key!r} has no verdict of a gate", "run the pipeline")
    outcome = with_gate(outcome, verdict)
    asked = training_request(spec.train, outcome, key)
    trained = RunView("train", asked.spec.storage_path, asked.run.id).outcome()
    if not isinstance(trained, TrainOutcome):
        raise SpecError(
            "--key", f"night {key!r} has no model: {asked.run.id} has not ended", "run the pipeline"
        )
    judgement = run_judge(
        spec.judge,
        outcome,
        trained,
        address=how.address,
        on_progress=table,
        num_cpus=how.num_cpus,
        job=job.options if has_jobs_api(how.address, job) else None,
        approval=spec.judge_approval,
        ends_at=night_end(spec.deadline, outcome),
        sweep=spec.sweep,
    )
    register_night(spec, outcome, trained)
    return judgement
