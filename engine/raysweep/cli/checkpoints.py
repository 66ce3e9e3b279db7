"""`raysweep checkpoints`, `raysweep pull` and `raysweep gc`."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn
from rich.text import Text

from raysweep.cli.consoles import make_console, print_facts, print_json
from raysweep.cli.endings import DONE
from raysweep.cli.listing import Listing
from raysweep.cli.lookup import command, open_sweep, read_sweep
from raysweep.cli.verify import show_bytes
from raysweep.runs.checkpoints import StoredCheckpoint
from raysweep.show import show_number
from raysweep.storage.checkpoints import restore_uri
from raysweep.storage.manifest import Manifest
from raysweep.verify import prune, verify_sweep


def show_checkpoints(name: str, storage: str | None, is_json: bool) -> int:
    """List the checkpoints that a sweep keeps."""
    status, reader = read_sweep(name, storage)
    kept = reader.checkpoints()
    if is_json:
        print_json([asdict(each) for each in kept])
        return DONE
    console = make_console()
    if not kept:
        console.print(f"{status.run_id} keeps no checkpoints")
        return DONE
    short = ("trial", "number>", "reports>", f"{status.metric}>", "size>", "new>")
    listing = Listing(short, ("kept as", "uri"))
    for each in kept:
        listing.add(*_cells(each))
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


def _cells(each: StoredCheckpoint) -> tuple[str | Text, ...]:
    why = Text(each.problem, style="bold red") if each.problem else Text(", ".join(each.needed_by))
    return (
        each.trial_id,
        str(each.number),
        str(each.iteration),
        "" if each.score is None else show_number(each.score),
        show_bytes(each.size_bytes),
        "" if each.new_bytes is None else show_bytes(each.new_bytes),
        why,
        each.uri,
    )


def pull(uri: str, target: str, is_json: bool) -> int:
    """Fetch a checkpoint into a folder, each byte checked."""
    console = make_console(is_stderr=True)
    manifest = _restore(uri, Path(target), console)
    if is_json:
        facts = {"uri": uri, "folder": target, "metadata": dict(manifest.metadata)}
        print_json({**facts, "size_bytes": manifest.size_bytes, "files": len(manifest.files)})
        return DONE
    found = f"{len(manifest.files)} files, {show_bytes(manifest.size_bytes)}, verified"
    make_console().print(f"{target}: {found}", soft_wrap=True)
    return DONE


def _restore(uri: str, target: Path, console: Console) -> Manifest:
    columns = (BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=None)

        def on_read(size_bytes: int, total_bytes: int) -> None:
            progress.update(task, advance=size_bytes, total=total_bytes)

        return restore_uri(uri, target, on_read=on_read)


def collect(name: str, storage: str | None, is_dry: bool, is_json: bool) -> int:
    """Delete what no checkpoint that is kept refers to; with `is_dry`, only say what that would be."""
    folder = open_sweep(name, storage)
    report = verify_sweep(folder, is_quick=True)
    orphans = tuple(each for each in report.orphans if each.object.startswith("checkpoints/"))
    done = orphans if is_dry else prune(folder, replace(report, findings=orphans))
    freed_bytes, left = sum(each.size_bytes for each in done), len(orphans) - len(done)
    if is_json:
        objects = [{"object": each.object, "size_bytes": each.size_bytes} for each in done]
        print_json({"is_dry_run": is_dry, "freed_bytes": freed_bytes, "objects": objects, "left": left})
        return DONE
    console = make_console()
    if orphans:
        listing = Listing(("object", "size>"), ("what it is",))
        for each in done:
            listing.add(each.object, show_bytes(each.size_bytes), each.problem)
        listing.show(console)
    verb = "would free" if is_dry else "freed"
    console.print(f"{verb} {show_bytes(freed_bytes)} in {folder.sweep_id}")
    if left:
        console.print(f"{left} left: written within the last hour, and their writer may live")
    if is_dry and done:
        console.print(f"free it: {command('gc', folder.sweep_id, folder.store.url)}", soft_wrap=True)
    return DONE
