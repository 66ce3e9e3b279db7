"""`raysweep clusters`: the clusters that were brought up for runs, and the removal of those left over."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from raysweep.cli.consoles import make_console, print_rows
from raysweep.cli.exit_codes import DONE
from raysweep.errors import SpecError
from raysweep.jobs.sync import run_sync
from raysweep.provision import Leaked, NightCluster, find_leaked, remove

_PHASES: Final = {"ready": "up", "coming": "coming up", "leaving": "being deleted", "ended": "ended"}


def show(manifest: str, *, is_removing: bool, is_json: bool) -> int:
    """List the clusters of the manifest's namespace; returns the exit code.

    Args:
        manifest: The manifest, as a path or as `rayjob:PATH`: it names the namespace.
        is_removing: Delete clusters that no run uses.
        is_json: JSON on standard output.
    """
    night = NightCluster.of(manifest) or NightCluster.of({"rayjob": manifest})
    if night is None:
        raise SpecError("MANIFEST", f"{manifest!r} is not a manifest", "write night.yaml")
    found = sorted(run_sync(lambda: find_leaked(night)), key=lambda each: each.name)
    removed = {each.name for each in found if is_removing and each.why and _remove(night, each)}
    if is_json:
        print_rows("clusters", [{**asdict(each), "removed": each.name in removed} for each in found])
        return DONE
    console = make_console()
    for each in found:
        left = f"left over, {each.why}" if each.why else ""
        state = "removed" if each.name in removed else left or _PHASES.get(each.phase, each.phase)
        console.print(f"{each.name}  {each.run_id}  {state}", soft_wrap=True)
    if not found:
        console.print("no cluster was brought up by raysweep")
    elif any(each.why and each.name not in removed for each in found):
        console.print("raysweep clusters MANIFEST --remove deletes those left over")
    return DONE


def _remove(night: NightCluster, leaked: Leaked) -> bool:
    return run_sync(lambda: remove(night, leaked))
