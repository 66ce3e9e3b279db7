"""`raysweep init`: the files of a first project."""

from __future__ import annotations

import shlex
from importlib import resources
from pathlib import Path
from typing import Final

import typer
import yaml

from raysweep.cli.consoles import make_console, print_facts, print_json
from raysweep.cli.exit_codes import DONE
from raysweep.errors import SpecError
from raysweep.specs.identity import slug

FILES: Final = ("model.py", "sweep.yaml", "dag.py", "flow.py")
_DEFAULT_NAME: Final = "first-sweep"


def write_project(folder: str, is_json: bool) -> int:
    """Write the files into the folder, which is made where there is none, and say how each is run.

    Raises:
        SpecError: One of the files is there already, or the folder cannot be written to; nothing is written.
    """
    root = Path(folder).expanduser()
    there = [name for name in FILES if (root / name).exists() or (root / name).is_symlink()]
    if there:
        fix = "init overwrites nothing: name another folder, or move them"
        raise SpecError("FOLDER", f"{folder!r} has {', '.join(there)}", fix)
    name = slug(root.resolve().name) or _DEFAULT_NAME
    try:
        root.mkdir(parents=True, exist_ok=True)
        for file in FILES:
            with open(root / file, "x", encoding="utf-8") as written:
                written.write(_text(file, name))
    except OSError as error:
        fix = "name a folder that you can write to"
        raise SpecError("FOLDER", f"{folder!r}: {error.strerror or error}", fix) from error
    if is_json:
        print_json({"folder": str(root.resolve()), "name": name, "files": list(FILES)})
        return DONE
    _explain(root, name)
    return DONE


def _text(file: str, name: str) -> str:
    text = (resources.files("raysweep.cli") / "templates" / f"{file}.txt").read_text(encoding="utf-8")
    is_yaml = file.endswith(".yaml")
    # A name such as 2026 or true would be a number or a truth value in YAML.
    is_quoted = is_yaml and yaml.safe_load(name) != name
    return text.replace("@name@", f'"{name}"' if is_quoted else name)


def _explain(root: Path, name: str) -> None:
    is_here = root.resolve() == Path.cwd()
    typer.echo(f"{name}: {', '.join(FILES)} in {'this folder' if is_here else root}")
    if not is_here:
        typer.echo(f"cd {shlex.quote(str(root))}")
    print_facts(
        make_console(),
        ("look", "raysweep plan sweep.yaml"),
        ("run", "raysweep sweep sweep.yaml --key first"),
        ("results", f"raysweep best {name}@latest"),
        ("Prefect", "python flow.py"),
        ("Airflow", "put the folder into the DAGs folder; dag.py says how to run it"),
    )
