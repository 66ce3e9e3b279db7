"""A spec as a DAG gives it: a spec object, a mapping, a path, or YAML; templates in it are rendered."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from raysweep.documents.text import read_json, read_yaml
from raysweep.errors import SpecError

SUFFIXES: Final = (".yaml", ".yml", ".json")


def read(
    given: Any, context: Mapping[str, Any], field: str = "spec", *, is_data: bool = False
) -> dict[str, Any]:
    """The fields of a spec, whose template fields Airflow has rendered; a file's content is rendered here.

    `is_data`: another task returned it. A path in it must then lead to a file of the DAG's author.

    Raises: SpecError for what is none of a mapping, a path, a YAML or JSON text.
    """
    if isinstance(given, Mapping):
        return dict(given)
    if not isinstance(given, str):
        problem = f"is a {type(given).__name__}"
        raise SpecError(field, problem, "give a mapping, a spec, or the path of a YAML or JSON file")
    is_json = given.endswith(".json")
    text = given
    if "\n" not in given and given.endswith(SUFFIXES):
        path = find(given, context, field)
        if is_data:
            _check_beside(path, context, field)
        text, is_json = rendered(path.read_text(encoding="utf-8"), context, str(path)), is_json
    elif _is_repr(given):
        fix = "give the task's output itself (spec=made.output), or a template that ends with | tojson"
        raise SpecError(
            field, f"{given[:80]!r} is the text of a Python dict, as a template makes of an XCom", fix
        )
    value = read_json(text, field) if is_json or text.lstrip().startswith('{"') else read_yaml(text, field)
    if not isinstance(value, dict):
        raise SpecError(field, f"{given[:80]!r} is not a mapping", "write fields such as name: flights")
    return value


def _is_repr(text: str) -> bool:
    """True if a text is what `str` makes of a dict: YAML would read most of it, and some of it wrongly."""
    if not text.lstrip().startswith("{'"):
        return False
    try:
        return isinstance(ast.literal_eval(text.strip()), dict)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False


def find(path: str, context: Mapping[str, Any], field: str) -> Path:
    """A file: by its absolute path, or beside the DAG, in its template folders, in the working folder."""
    given = Path(path).expanduser()
    tried = [given] if given.is_absolute() else [folder / given for folder in folders(context)]
    for each in tried:
        if each.exists():
            return each
    shown = ", ".join(map(str, tried))
    raise SpecError(field, f"no file {path!r} (tried {shown})", "check the path, or put it beside the DAG")


def folders(context: Mapping[str, Any]) -> list[Path]:
    """The folders in which relative paths are looked for."""
    return [*_own_folders(context), Path.cwd()]


def _own_folders(context: Mapping[str, Any]) -> list[Path]:
    """The folders of the DAG: what lies there is its author's."""
    dag = context["dag"]
    searched = getattr(dag, "template_searchpath", None) or ()
    searched = (searched,) if isinstance(searched, str) else searched
    beside = [Path(dag.fileloc).parent] if getattr(dag, "fileloc", None) else []
    return [*beside, *map(Path, searched)]


def _check_beside(path: Path, context: Mapping[str, Any], field: str) -> None:
    """See that a path that another task returned stays in the DAG's folders, links included."""
    real = path.resolve()
    if not any(real.is_relative_to(folder.resolve()) for folder in _own_folders(context)):
        problem = f"{str(path)!r} came from another task and is not in the DAG's folders"
        raise SpecError(
            field, problem, "let that task return the spec itself, or put the file beside the DAG"
        )


def rendered(text: str, context: Mapping[str, Any], where: str) -> str:
    """A file's text with its templates rendered, as those of a field. Raises: SpecError."""
    if "{{" not in text and "{%" not in text:
        return text
    from jinja2 import TemplateError

    try:
        # Sandboxed, and never native: this is a text, whatever the DAG prefers.
        environment = context["dag"].get_template_env(force_sandboxed=True)
        return str(environment.from_string(text).render(context))
    except TemplateError as error:
        raise template_error(error, where) from None


def template_error(error: Exception, where: str) -> SpecError:
    """A template that cannot be rendered, with what to write instead."""
    text = str(error)
    if any(f"'{name}'" in text for name in ("ds", "ds_nodash", "ts", "ts_nodash", "logical_date")):
        fix = "a run without a logical date has none; use {{ run_id }} or {{ dag_run.run_after }}"
        return SpecError(where, f"{text} in this run", fix)
    return SpecError(where, f"a template cannot be rendered: {text}", "check what stands between {{ and }}")
