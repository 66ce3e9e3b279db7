"""`raysweep checkpoints`, `raysweep pull` and `raysweep gc`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import Lock

from rich.text import Text

from raysweep.cli.bars import progress_bar
from raysweep.cli.consoles import make_console, print_facts, print_json, print_rows
from raysweep.cli.exit_codes import DONE
from raysweep.cli.lookup import DEFAULT_STORAGE, command, open_sweep, read_sweep
from raysweep.cli.tables import Listing
from raysweep.errors import JournalDamagedError, SweepDamagedError, SweepHeldError, SweepNotFoundError
from raysweep.outcome.showing.formatting import show_bytes, show_column
from raysweep.runs.across_runs.budget import (
    BudgetPlan,
    Release,
    asked_budget,
    complete,
    keep_budget,
    name_like,
    plan_budget,
    sweeps_of,
)
from raysweep.runs.across_runs.pins import PinReader
from raysweep.runs.folder import SweepFolder
from raysweep.runs.reading.checkpoints import StoredCheckpoint, list_trained
from raysweep.runs.reading.naming.lookup import find_training
from raysweep.storage.checkpoints.manifest import Manifest
from raysweep.storage.checkpoints.store import restore_uri
from raysweep.storage.objects.opening import open_store
from raysweep.verify import prune, verify_sweep
from raysweep.verify.report import Finding


def show_checkpoints(name: str, storage: str | None, is_json: bool, start: int = 0) -> int:
    """List the checkpoints that a sweep keeps, or a training run."""
    try:
        status, reader = read_sweep(name, storage)
    except SweepNotFoundError:
        training = find_training(name, storage)
        if training is None:
            raise
        return _list(training.run_id, "score", list_trained(training), is_json, start)
    return _list(status.run_id, status.metric, reader.checkpoints(), is_json, start)


def _list(run_id: str, metric: str, kept: Sequence[StoredCheckpoint], is_json: bool, start: int) -> int:
    if is_json:
        print_rows("checkpoints", [asdict(each) for each in kept], start)
        return DONE
    console = make_console()
    if not kept:
        console.print(f"{run_id} keeps no checkpoints")
        return DONE
    short = ("trial", "number>", "reports>", f"{metric}>", "size>", "new>")
    listing = Listing(short, ("kept as", "uri"))
    scores = show_column([each.score for each in kept])
    for each, score in zip(kept, scores, strict=True):
        listing.add(*_cells(each, score))
    listing.show(console)
    size_bytes = sum(each.size_bytes for each in kept)
    new_bytes = sum(each.new_bytes or 0 for each in kept)
    console.print()
    print_facts(
        console,
        (
            "checkpoints",
            f"{len(kept)}, {show_bytes(size_bytes)} restored, {show_bytes(new_bytes)} of their own",
        ),
        ("fetch one", "raysweep pull URI FOLDER"),
    )
    return DONE


def _cells(each: StoredCheckpoint, score: str) -> tuple[str | Text, ...]:
    pins = [f"pinned: {reason}" for reason in each.pinned_by]
    why = Text(each.problem, style="bold red") if each.problem else Text(", ".join((*each.needed_by, *pins)))
    return (
        each.trial_id,
        str(each.number),
        "" if each.iteration is None else str(each.iteration),
        score,
        show_bytes(each.size_bytes),
        "" if each.new_bytes is None else show_bytes(each.new_bytes),
        why,
        each.uri,
    )


def pull(uri: str, target: str, is_json: bool, *, follows: bool) -> int:
    """Fetch a checkpoint into a folder, each byte checked."""
    manifest = _restore(uri, Path(target), follows=follows)
    if is_json:
        facts = {"uri": uri, "folder": target, "metadata": dict(manifest.metadata)}
        print_json({**facts, "size_bytes": manifest.size_bytes, "files": len(manifest.files)})
        return DONE
    found = f"{len(manifest.files)} files, {show_bytes(manifest.size_bytes)}, verified"
    make_console().print(f"{target}: {found}", soft_wrap=True)
    return DONE


def _restore(uri: str, target: Path, *, follows: bool) -> Manifest:
    lock, done = Lock(), 0
    with progress_bar(is_bytes=True) as advance:

        def on_read(size_bytes: int, total_bytes: int) -> None:
            nonlocal done
            with lock:
                done += size_bytes
                advance("restoring", done, total_bytes)

        return restore_uri(uri, target, on_read=on_read, follows=follows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collecting:
    """Options of `raysweep gc`. `budget_bytes`: in place of the newest spec's, if given."""

    is_dry: bool
    is_json: bool
    budget_bytes: int | None = None


@dataclass(kw_only=True)
class _Found:
    """The objects that a collection has deleted, or would; `skipped`: the sweeps left alone, and why."""

    objects: list[tuple[str, Finding]] = field(default_factory=list)
    left: int = 0
    skipped: list[str] = field(default_factory=list)


def collect(name: str, storage: str | None, how: Collecting) -> int:
    """Delete what no checkpoint that is kept refers to, and what is over the budget of the sweep's name.

    Of one sweep, or of all of a name; with `is_dry`, only say what that would be.
    """
    folders = _sweeps_of(name, storage)
    found = _Found()
    if len(folders) == 1:
        _collect_orphans(folders[0], how, found)
    else:
        for folder in folders:
            try:
                _collect_orphans(folder, how, found)
            except (SweepHeldError, SweepDamagedError, JournalDamagedError) as error:
                found.skipped.append(f"{folder.sweep_id} is left alone: {error}")
    plan, releases = _collect_budget(folders[0], how)
    _show_collected(folders, how, found, plan, releases)
    return DONE


def _sweeps_of(name: str, storage: str | None) -> tuple[SweepFolder, ...]:
    """The sweep of this id; or all sweeps of this name."""
    if "/" not in name:
        store = open_store(storage or DEFAULT_STORAGE)
        meant = name_like(store, name.removesuffix("-"))
        if meant is not None and (named := sweeps_of(store, meant)):
            return named
    return (open_sweep(name, storage),)


def _collect_orphans(folder: SweepFolder, how: Collecting, found: _Found) -> None:
    if not how.is_dry:
        complete(folder)
    report = verify_sweep(folder, is_quick=True)
    orphans = tuple(each for each in report.orphans if each.object.startswith("checkpoints/"))
    done = orphans if how.is_dry else prune(folder, replace(report, findings=orphans))
    found.objects += [(folder.sweep_id, each) for each in done]
    found.left += len(orphans) - len(done)


def _collect_budget(folder: SweepFolder, how: Collecting) -> tuple[BudgetPlan | None, tuple[Release, ...]]:
    record = folder.read_spec()
    name = str(record.spec.get("name", "")) if record is not None else ""
    budget_bytes = how.budget_bytes if how.budget_bytes is not None else asked_budget(folder.store, name)
    if budget_bytes is None:
        return None, ()
    pins = PinReader(folder.store)
    plan = plan_budget(folder.store, name, budget_bytes, pins)
    return plan, plan.releases if how.is_dry else keep_budget(folder.store, plan, pins)


def _show_collected(
    folders: tuple[SweepFolder, ...],
    how: Collecting,
    found: _Found,
    plan: BudgetPlan | None,
    releases: tuple[Release, ...],
) -> None:
    freed_bytes = sum(each.size_bytes for _, each in found.objects) + sum(
        each.freed_bytes for each in releases
    )
    if how.is_json:
        objects = [
            {"object": each.object, "size_bytes": each.size_bytes, "sweep_id": sweep_id}
            for sweep_id, each in found.objects
        ]
        facts = {"is_dry_run": how.is_dry, "freed_bytes": freed_bytes, "objects": objects, "left": found.left}
        budget = None if plan is None else {**asdict(plan), "releases": [asdict(each) for each in releases]}
        print_json({**facts, "budget": budget, "skipped": found.skipped})
        return
    console = make_console()
    if found.objects or releases:
        listing = Listing(("object", "size>"), ("what it is",))
        for _, each in found.objects:
            listing.add(each.object, show_bytes(each.size_bytes), each.problem)
        for release in releases:
            listing.add(
                release.uri.removeprefix(f"{folders[0].store.url}/"),
                show_bytes(release.freed_bytes),
                release.why,
            )
        listing.show(console)
    verb = "would free" if how.is_dry else "freed"
    which = folders[0].sweep_id if len(folders) == 1 else f"{len(folders)} sweeps"
    console.print(f"{verb} {show_bytes(freed_bytes)} in {which}")
    if found.left:
        console.print(f"{found.left} left: written within the last hour, and their writer may live")
    for line in (*found.skipped, *_budget_lines(plan, how)):
        console.print(line, soft_wrap=True)
    if how.is_dry and (found.objects or releases):
        console.print(f"free it: {command('gc', _again(folders), folders[0].store.url)}", soft_wrap=True)


def _budget_lines(plan: BudgetPlan | None, how: Collecting) -> Iterator[str]:
    if plan is None:
        return
    used, budget = show_bytes(plan.used_bytes), show_bytes(plan.budget_bytes)
    yield f"budget of {plan.name!r}: {budget}; its sweeps took up {used}"
    yield from plan.notes
    for uri, why in plan.pinned:
        yield f"pinned: {uri} ({why})"
    if plan.over_bytes:
        yield f"{show_bytes(plan.over_bytes)} over the budget are pinned, or of sweeps that have not ended"


def _again(folders: tuple[SweepFolder, ...]) -> str:
    """The name or id to give them again."""
    if len(folders) == 1:
        return folders[0].sweep_id
    record = folders[0].read_spec()
    return str(record.spec.get("name", "")) if record is not None else folders[0].sweep_id
