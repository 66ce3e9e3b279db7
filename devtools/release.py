"""Builds a release and checks it: `make release`.

It refuses a version that the changelog does not describe. It builds sdist and wheel, reads their metadata and
contents, installs the wheel with each extra into a fresh environment, imports the packages there, and writes
the notes of the release from the changelog. It uploads nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from email import message_from_string
from pathlib import Path
from typing import Final

IMPORTS: Final = {
    "": "import raysweep; raysweep.SweepSpec",
    "ray": "import ray, raysweep; raysweep.run_sweep",
    "prefect": "import raysweep_prefect",
    "airflow": "import raysweep_airflow",
    "search": "import cmaes",
    "judge": "import scipy",
    "gp": "import scipy, torch",
    "torch": "import torch",
    "xgboost": "import xgboost",
    "tensorflow": "import tensorflow",
    "wandb": "import wandb",
    "otel": "from opentelemetry.proto.trace.v1 import trace_pb2",
    "mcp": "import raysweep.mcp_server.server",
    "examples": "import lightgbm, pandas",
}
"""The code that has to work in an environment with each extra; an extra that is not here is not checked."""
LARGE: Final = ("gp", "torch", "tensorflow", "xgboost")
"""Extras of hundreds of megabytes: `--extras all` installs them as well."""
PACKAGES: Final = ("raysweep/", "raysweep_airflow/", "raysweep_prefect/")
_HEADING: Final = re.compile(r"^## \[?(?P<version>[^\]\s]+)\]?.*$", re.MULTILINE)


class ReleaseError(Exception):
    """A problem that has to be mended before this version can be released."""


def notes(changelog: str, version: str) -> str:
    """The changelog's section for a version, without its heading.

    Raises:
        ReleaseError: The changelog has no such section, or an empty one.
    """
    headings = list(_HEADING.finditer(changelog))
    for heading, after in zip(headings, [*headings[1:], None], strict=True):
        if heading["version"] == version:
            text = changelog[heading.end() : after.start() if after else None].strip()
            if text:
                return text + "\n"
    found = ", ".join(heading["version"] for heading in headings) or "no version"
    raise ReleaseError(
        f"CHANGELOG.md describes {found}, and not {version}: rename its section [Unreleased] to [{version}]"
    )


def check_wheel(wheel: Path, version: str) -> None:
    """Raises: ReleaseError: Its version, packages or metadata are wrong."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (path,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        metadata = message_from_string(archive.read(path).decode())
    if metadata["Version"] != version:
        raise ReleaseError(f"{wheel.name} has version {metadata['Version']}; expected {version}")
    missing = [
        name
        for package in PACKAGES
        for name in (f"{package}__init__.py", f"{package}py.typed")
        if name not in names
    ]
    if missing:
        raise ReleaseError(f"{wheel.name} has no {', '.join(missing)}")
    foreign = sorted({name.split("/")[0] for name in names if not name.startswith(PACKAGES)} - _own(names))
    if foreign:
        raise ReleaseError(f"{wheel.name} holds {', '.join(foreign)} besides its packages")


def _own(names: Sequence[str]) -> set[str]:
    return {name.split("/")[0] for name in names if ".dist-info/" in name}


def check_sdist(sdist: Path) -> None:
    """Raises: ReleaseError: It cannot be built from, or lacks the license."""
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    missing = {"pyproject.toml", "README.md", "LICENSE", "hatch_build.py"} - names
    if missing:
        raise ReleaseError(f"{sdist.name} has no {', '.join(sorted(missing))}")


def check_extra(uv: str, wheel: Path, extra: str, env: Mapping[str, str]) -> None:
    """Install the wheel with an extra into a fresh environment, and import what it is for.

    Raises:
        ReleaseError: It cannot be installed or imported; with the last lines of the command.
    """
    with tempfile.TemporaryDirectory(prefix="raysweep-release-") as folder:
        python = Path(folder) / "venv/bin/python"
        _call([uv, "venv", "--quiet", "--python", sys.executable, str(Path(folder) / "venv")], folder, env)
        what = f"raysweep[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
        _call([uv, "pip", "install", "--quiet", "--python", str(python), what], folder, env)
        _call([str(python), "-c", IMPORTS[extra]], folder, env)
        _call([str(python.with_name("raysweep")), "--version"], folder, env)


def _call(command: Sequence[str], folder: str, env: Mapping[str, str]) -> None:
    ran = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if ran.returncode:
        last = "\n".join((ran.stdout + ran.stderr).splitlines()[-15:])
        raise ReleaseError(f"{' '.join(command)} ended with {ran.returncode}:\n{last}")


def build(uv: str, root: Path, out: Path, env: Mapping[str, str]) -> tuple[Path, Path]:
    """Build sdist and wheel anew."""
    for old in (*out.glob("*.whl"), *out.glob("*.tar.gz")):
        old.unlink()
    _call([uv, "build", "--quiet", "--out-dir", str(out), str(root)], str(root), env)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return sdist, wheel


def main(argv: list[str] | None = None) -> int:
    """Build, check, write the notes; 1 and one line where something has to be mended."""
    parser = argparse.ArgumentParser(prog="python -m devtools.release", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("dist"), help="where sdist, wheel and NOTES.md go")
    parser.add_argument(
        "--extras", choices=("small", "all"), default="small", help=f"all: also {', '.join(LARGE)}"
    )
    given = parser.parse_args(argv)
    root = Path(__file__).resolve().parents[1]
    version = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    uv, env = str(Path(sys.executable).with_name("uv")), dict(os.environ)
    for name in ("PYTHONPATH", "VIRTUAL_ENV"):
        env.pop(name, None)
    try:
        text = notes((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
        given.out.mkdir(parents=True, exist_ok=True)
        sdist, wheel = build(uv, root, given.out.resolve(), env)
        check_sdist(sdist)
        check_wheel(wheel, version)
        for extra in IMPORTS:
            if given.extras == "all" or extra not in LARGE:
                _say(
                    f"raysweep[{extra}] in a fresh environment"
                    if extra
                    else "raysweep in a fresh environment"
                )
                check_extra(uv, wheel, extra, env)
    except ReleaseError as error:
        _say(f"error: {error}")
        return 1
    (given.out / "NOTES.md").write_text(text, encoding="utf-8")
    _say(f"{sdist.name}, {wheel.name} and NOTES.md are in {given.out}")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
