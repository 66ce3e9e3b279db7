"""Each public option has a line in `docs/design/surface.md`, with a reason, and each line names an option."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import raysweep as rs
from raysweep.jobs.options import JobOptions
from raysweep.specs.pipeline import GateSpec

ROOT = Path(__file__).parents[3]
ROW = re.compile(r"^\| (`\w+`(?:, `\w+`)*) \| (?:keep \| )?[^|]+ \|$", re.MULTILINE)
# These have pages of their own: each policy declares its options in its own file.
POLICIES = {"SchedulerSpec", "SearchSpec"}


def listed() -> list[str]:
    text = (ROOT / "docs/design/surface.md").read_text(encoding="utf-8")
    return [name for row in ROW.findall(text) for name in re.findall(r"\w+", row)]


def options_of(schema: dict[str, Any]) -> Iterator[str]:
    """The properties of a schema's models and of the mappings inside them."""
    parts = [schema, *(part for name, part in schema.get("$defs", {}).items() if name not in POLICIES)]
    for part in parts:
        yield from part.get("properties", {})


def orchestrator_options() -> Iterator[str]:
    """The parameters of Airflow's operators and Prefect's flows, read without either of them."""
    operators = ast.parse((ROOT / "operators/raysweep_airflow/operators.py").read_text(encoding="utf-8"))
    flows = ast.parse((ROOT / "flows/raysweep_prefect/flows.py").read_text(encoding="utf-8"))
    functions = [
        node for node in ast.walk(operators) if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ]
    functions += [
        node for node in flows.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    ]
    for function in functions:
        arguments = (*function.args.args, *function.args.kwonlyargs)
        yield from (each.arg for each in arguments if each.arg not in ("self", "context"))


def public() -> set[str]:
    found = {*options_of(rs.SweepSpec.model_json_schema()), *options_of(rs.TrainSpec.model_json_schema())}
    found |= {*GateSpec.model_fields, *JobOptions.model_fields, *orchestrator_options()}
    for function in (rs.run_sweep, rs.run_training, rs.from_tuner, rs.load):
        found |= set(inspect.signature(function).parameters)
    return found - {"tuner"}


def test_each_public_option_has_a_line_with_a_reason() -> None:
    assert public() - set(listed()) == set()


def test_each_line_names_an_option_that_exists() -> None:
    assert set(listed()) - public() == set()
