"""`raysweep verify`."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text

from raysweep.cli.bars import progress_bar
from raysweep.cli.consoles import make_console, print_facts, print_json
from raysweep.cli.exit_codes import DONE, FAILED
from raysweep.cli.lookup import DEFAULT_STORAGE, open_sweep
from raysweep.cli.tables import Listing
from raysweep.errors import SweepNotFoundError
from raysweep.outcome.showing.formatting import show_bytes, show_counts
from raysweep.runs.folder import SweepFolder
from raysweep.storage.objects.opening import open_store
from raysweep.verify import Finding, VerifyReport, prune, repair, verify_sweep

_COLOURS = {"damage": "bold red", "orphan": "yellow", "note": "dim"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The work beside checking, and the form of the output."""

    is_quick: bool
    is_pruned: bool
    is_repaired: bool
    is_json: bool


def run_verify(name: str, storage: str | None, wanted: Wanted) -> int:
    """Check a sweep, and mend it if that is wanted; the exit code is about what is left then."""
    folder = _open(name, storage)
    with progress_bar(is_bytes=True) as on_read:
        report = verify_sweep(folder, is_quick=wanted.is_quick, on_read=on_read)
    repaired = repair(folder, report) if wanted.is_repaired else ()
    pruned = prune(folder, report) if wanted.is_pruned else ()
    if repaired or pruned:
        report = verify_sweep(folder, is_quick=wanted.is_quick)
    if wanted.is_json:
        mended = {"repaired": [each.object for each in repaired], "pruned": [each.object for each in pruned]}
        print_json(report.to_dict() | mended)
    else:
        _show(report, repaired, pruned)
    return DONE if report.is_sound else FAILED


def _open(name: str, storage: str | None) -> SweepFolder:
    """As other commands find it; by its folder's URI also without a sweep.json: that may be what is wrong."""
    try:
        return open_sweep(name, storage)
    except SweepNotFoundError:
        parent, slash, last = name.rstrip("/").rpartition("/")
        where = (parent or "/") if slash else storage or DEFAULT_STORAGE
        folder = SweepFolder(open_store(where), last)
        if last in ("", ".", "..") or not _holds_a_journal(folder):
            raise
        return folder


def _holds_a_journal(folder: SweepFolder) -> bool:
    return next(iter(folder.store.list(f"{folder.sweep_id}/journal")), None) is not None


def _show(report: VerifyReport, repaired: tuple[Finding, ...], pruned: tuple[Finding, ...]) -> None:
    console = make_console()
    verdict = ("sound", "bold green") if report.is_sound else ("damaged", "bold red")
    console.print(Text.assemble(verdict, " ", report.sweep_id), soft_wrap=True)
    print_facts(console, *_facts(report, repaired, pruned))
    if report.findings:
        console.print()
        listing = Listing(("", "object"), ("what is wrong", "lost", "what can be done"))
        for each in report.findings:
            listing.add(
                Text(each.severity, style=_COLOURS[each.severity]),
                each.object,
                each.problem + (f" ({show_bytes(each.size_bytes)})" if each.severity == "orphan" else ""),
                each.lost,
                each.fix,
            )
        listing.show(console)


def _facts(
    report: VerifyReport, repaired: tuple[Finding, ...], pruned: tuple[Finding, ...]
) -> list[tuple[str, str | Text]]:
    checked = report.checked
    journal = f"{checked.segments} segments in {checked.journal_objects} objects, {checked.records} records"
    read = "sizes only" if report.is_quick else f"{show_bytes(checked.hashed_bytes)} read"
    facts: list[tuple[str, str | Text]] = [
        ("status", report.status + (", a controller runs it" if report.is_running else "")),
        ("trials", show_counts(report.trials)),
        ("journal", f"{journal}, generation {report.generation}"),
        ("readable", report.readable),
        ("snapshots", str(checked.snapshots)),
        ("checkpoints", f"{checked.checkpoints} with {checked.files} files, {read}"),
    ]
    if report.orphans:
        facts.append(("orphans", f"{len(report.orphans)}, {show_bytes(report.orphaned_bytes)}"))
    if repaired:
        facts.append(("repaired", ", ".join(each.object for each in repaired)))
    if pruned:
        facts.append(("pruned", f"{len(pruned)}, {show_bytes(sum(each.size_bytes for each in pruned))}"))
    return [*facts, ("stored at", report.uri)]
