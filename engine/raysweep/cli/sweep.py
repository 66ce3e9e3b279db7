"""`raysweep sweep` and `raysweep resume`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
import typer

from raysweep.cli.consoles import clean_stdout, logged_to, make_console, print_facts
from raysweep.cli.documents import read_spec
from raysweep.cli.jobhow import JobHow, has_jobs_api
from raysweep.cli.lookup import DEFAULT_STORAGE, open_sweep
from raysweep.cli.process import CANCELLED, DONE, FAILED
from raysweep.errors import SweepNotFoundError
from raysweep.live import LiveTable, show_config, show_counts, show_duration, show_number
from raysweep.outcome import SweepOutcome
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.spec import RunRequest, SweepSpec
from raysweep.storage.store import open_store

_CHANGED: Final = b'{"e":"SpecChanged"'
EXIT_CODES: Final = {"failed": FAILED, "cancelled": CANCELLED}


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """Where and how a sweep is run, and what is printed."""

    address: str | None
    is_json: bool
    takeover: bool
    num_cpus: float | None


def run_file(
    path: str, storage: str | None, settings: Sequence[str], key: str | None, how: How, job: JobHow
) -> int:
    """Run the sweep that a file describes; returns the exit code."""
    return run(read_spec(SweepSpec, path, settings=settings, storage=storage), key, how, job)


def resume(name: str, storage: str | None, how: How, job: JobHow) -> int:
    """Run a sweep on from what its folder holds; returns the exit code."""
    folder = open_sweep(name, storage)
    record = folder.read_spec()
    if record is None:
        raise SweepNotFoundError(folder.sweep_id, folder.store.url)
    spec = SweepSpec.from_any(newest_spec(folder, record))
    if open_store(spec.storage_path).url != folder.store.url:
        spec = spec.replace(storage_path=folder.store.url)
    return run(spec, record.key, how, job)


def newest_spec(folder: SweepFolder, record: SweepRecord) -> dict[str, Any]:
    """The spec that the sweep runs under: as it was started, or as it was last changed."""
    fields = dict(record.spec)
    for line in folder.journal().read():
        if line.startswith(_CHANGED):
            fields = dict(orjson.loads(line)["spec"])
    return fields


def run(spec: SweepSpec, key: str | None, how: How, job: JobHow) -> int:
    """Run the sweep, show how it goes and what came out; returns the exit code."""
    request = RunRequest.of(spec, key)
    if has_jobs_api(how.address, job):
        from raysweep.cli import remote

        found = remote.run(request, how.address or "", job, is_json=how.is_json)
        return show_outcome(found, is_json=how.is_json) if isinstance(found, SweepOutcome) else DONE
    from raysweep.cluster.run import run_sweep

    with (
        LiveTable(make_console(is_stderr=how.is_json)) as table,
        logged_to(table.note),
        clean_stdout(is_json=how.is_json),
    ):
        outcome = run_sweep(
            request,
            address=how.address,
            on_progress=table,
            takeover=how.takeover,
            num_cpus=how.num_cpus,
            resume_cancelled=job.options.on_cancelled == "resume",
        )
    return show_outcome(outcome, is_json=how.is_json)


def show_outcome(outcome: SweepOutcome, *, is_json: bool) -> int:
    """Show what came out; returns the exit code."""
    _summarise(outcome, is_json=is_json)
    if is_json:
        typer.echo(outcome.to_json())
    return EXIT_CODES.get(outcome.status, DONE)


def command(verb: str, sweep_id: str, storage: str) -> str:
    """The command line for another look at a sweep."""
    parts = ["raysweep", verb, sweep_id]
    if storage != open_store(DEFAULT_STORAGE).url:
        parts += ["--storage", storage]
    return shlex.join(parts)


def reason(outcome: SweepOutcome) -> str:
    """Why it ended, without the counts and the best that `outcome.why` has around it."""
    _, found, rest = outcome.why.partition(", ended by ")
    if found:
        return rest.partition("; best ")[0]
    _, found, rest = outcome.why.partition(f"{outcome.status}: ")
    return rest.rpartition("; best ")[0] or rest if found else outcome.why


def _summarise(outcome: SweepOutcome, *, is_json: bool) -> None:
    console = make_console(is_stderr=is_json)
    colour = {DONE: "bold green", FAILED: "bold red"}.get(EXIT_CODES.get(outcome.status, DONE), "bold yellow")
    console.print(f"[{colour}]{outcome.status}[/] {outcome.sweep_id}")
    took = show_duration(outcome.ended_at - outcome.started_at)
    facts = [
        ("trials", f"{show_counts(outcome.counts, len(outcome))}, in {took}"),
        ("ended", reason(outcome)),
    ]
    if outcome.error is not None:
        first = (outcome.error.message.splitlines() or [""])[0]
        facts.append(("error", f"{outcome.error.type}: {first}"))
    best = outcome.best
    if best is not None:
        score = "" if best.score is None else show_number(best.score)
        facts += [
            ("best", f"{outcome.metric} {score} (trial {best.trial_id})"),
            ("config", show_config(best.config)),
        ]
        facts += [("checkpoint", best.checkpoint_uri)] if best.checkpoint_uri else []
    storage = outcome.uri.rpartition("/")[0]
    verb = "best" if best is not None else "trials"
    next_command = command(verb, outcome.sweep_id, storage)
    facts += [
        ("outcome", f"{outcome.uri}/outcome.json"),
        ("next", next_command if best is not None else f"{next_command} --attempts"),
    ]
    print_facts(console, *facts)
