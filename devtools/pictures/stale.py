"""Finds pictures that were made from other page parts than those of today, or that no script made.

`docs/images/made.json` has, for each picture and each report of the gallery, the digest of what it was made
from: the scripts and style sheets of the pages, the pages of the orchestrator that it shows, and the version.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
MADE: Final = "docs/images/made.json"
PARTS: Final = ("engine/raysweep/pages/static/*", "engine/raysweep/version.py")
OF_GROUP: Final = {
    "airflow": (*PARTS, "operators/raysweep_airflow/page/static/*"),
    "approval": (
        "engine/raysweep/pages/evidence.py",
        "engine/raysweep/version.py",
        "operators/raysweep_airflow/approval.py",
    ),
    "prefect": ("flows/raysweep_prefect/artifacts.py", "engine/raysweep/version.py"),
    "prefect-approval": ("flows/raysweep_prefect/artifacts.py", "engine/raysweep/version.py"),
}
"""The sources of a group's pictures, by `group_of`; of other groups: `PARTS`."""

_IMPORT: Final = re.compile(rb"^(from|import) .*\n", re.MULTILINE)


def digest_of(name: str, root: Path = ROOT) -> str:
    """The digest of what a picture of this name is made from; imports do not count."""
    patterns = OF_GROUP.get(group_of(name), PARTS)
    files = sorted(path for pattern in patterns for path in root.glob(pattern) if path.is_file())
    found = hashlib.sha256()
    for path in files:
        text = _IMPORT.sub(b"", path.read_bytes()) if path.suffix == ".py" else path.read_bytes()
        found.update(f"{path.relative_to(root).as_posix()} {len(text)}\n".encode() + text)
    return found.hexdigest()[:16]


def record(names: Iterable[str], root: Path = ROOT) -> None:
    """Note that these were made now. Names of files that are gone are dropped."""
    made = _read(root) | {name: digest_of(name, root) for name in names}
    kept = {name: made[name] for name in sorted(made) if _path(name, root).is_file()}
    (root / MADE).write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


def find_problems(root: Path = ROOT) -> list[str]:
    """Stale pictures by group; each one that is missing, unused or made by hand; all with the fix."""
    made = _read(root)
    there = {path.name for path in (root / "docs/images").glob("*.png")}
    there |= {f"gallery-{path.name}" for path in (root / "docs/gallery").glob("*.html")}
    problems = [f"{name}: no script made it; run make pictures" for name in sorted(there - set(made))]
    problems += [
        f"{name}: missing; run make pictures PICTURES={group_of(name)}" for name in sorted(set(made) - there)
    ]
    stale = sorted(name for name in there & set(made) if made[name] != digest_of(name, root))
    for group in sorted({group_of(name) for name in stale}):
        paths = [str(_path(name, root).relative_to(root)) for name in stale if group_of(name) == group]
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        changed = "the page parts or the version have changed since; "
        problems.append(f"{paths[0]}{more}: {changed}run make pictures PICTURES={group}")
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    shown = {name for page in pages for name in re.findall(r"images/([\w-]+\.png)", page.read_text("utf-8"))}
    return problems + [f"{name}: no page shows it; remove it" for name in sorted(_pictures(there) - shown)]


def group_of(name: str) -> str:
    """The group of a picture, as `make pictures PICTURES=` takes it: `report`, `prefect-approval`, …"""
    return "prefect-approval" if name.startswith("prefect-approval-") else name.partition("-")[0]


def _pictures(names: set[str]) -> set[str]:
    return {name for name in names if name.endswith(".png")}


def _path(name: str, root: Path) -> Path:
    if name.endswith(".html"):
        return root / "docs/gallery" / name.removeprefix("gallery-")
    return root / "docs/images" / name


def _read(root: Path) -> dict[str, str]:
    path = root / MADE
    made: dict[str, str] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return made
