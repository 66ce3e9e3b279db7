"""`@task.sweep`: the decorated function is the trainable.

How it gets to the cluster: a function of a module that Python can import goes by that module's name, and the
module with the job (`working_dir`, `py_modules`). One that is written in the DAG's file cannot be imported
where Airflow is not installed: its source goes with the job, as a module of its own. It must then stand for
itself, and import what it needs inside; what does not is refused when the DAG is read.
"""

from __future__ import annotations

import ast
import builtins
import dis
import importlib.util
import inspect
import re
import tempfile
import types
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, task_decorator_factory

from raysweep.errors import SpecError
from raysweep_airflow.operators import SweepOperator

if TYPE_CHECKING:
    from raysweep.jobs import JobOptions
    from raysweep.specs import SweepSpec


class DecoratedSweepOperator(DecoratedOperator, SweepOperator):
    """A `SweepOperator` whose trainable is a function of the DAG's file."""

    template_fields = SweepOperator.template_fields
    template_fields_renderers = SweepOperator.template_fields_renderers
    custom_operator_name = "@task.sweep"
    # Of one try: where the function's source lies until it is uploaded.
    folder: Path

    def __init__(self, *, python_callable: Any, op_args: Any = None, **kwargs: Any) -> None:
        if op_args or kwargs.get("op_kwargs"):
            fix = "call it with no arguments: its config comes from param_space"
            raise SpecError("@task.sweep", f"{python_callable.__name__} is called with arguments", fix)
        self.reference = import_path(python_callable)
        if self.reference is None:
            check_alone(python_callable)
        # Airflow checks that the function can be called so: each trial calls it with its config.
        super().__init__(python_callable=python_callable, op_args=[{}], **kwargs)

    def execute(self, context: Any) -> Any:
        # What is in it is uploaded with the submission; a task that is deferred leaves nothing on the worker.
        with tempfile.TemporaryDirectory(prefix="raysweep-") as folder:
            self.folder = Path(folder)
            return SweepOperator.execute(self, context)

    def added(self) -> dict[str, Any]:
        return {"name": self.task_id, "trainable": f"{self._module}:{self.python_callable.__name__}"}

    def asked(self, context: Mapping[str, Any], fields: dict[str, Any]) -> SweepSpec:
        from raysweep.specs import SweepSpec

        if "trainable" in fields:
            raise SpecError("trainable", "is the decorated function", "leave it out of the spec")
        trainable: Any = self.reference or f"{self._module}:{self.python_callable.__name__}"
        if self.reference is None and self.address is not None:
            trainable = self.python_callable
        return SweepSpec.from_any({"name": self.task_id, **fields, "trainable": trainable})

    def options(self, options: JobOptions) -> JobOptions:
        if self.reference is not None:
            return options
        module = self.folder / f"{self._module}.py"
        module.write_text(source_of(self.python_callable), encoding="utf-8")
        return options.replace(py_modules=[*options.py_modules, module])

    @property
    def _module(self) -> str:
        return "raysweep_task_" + re.sub(r"\W", "_", self.python_callable.__name__)


def sweep_task(python_callable: Callable[..., Any] | None = None, **kwargs: Any) -> TaskDecorator:
    """Make a function a sweep: `@task.sweep(spec={"param_space": …, "metric": …, "mode": …})`.

    Args:
        python_callable: The trainable: takes a config, and reports or returns metrics.
        kwargs: Of the `SweepOperator`; the spec without `trainable`, its name by default the task's.
    """
    return task_decorator_factory(
        python_callable=python_callable,
        # Its result is one value, whatever the function says that it returns.
        multiple_outputs=False,
        decorated_operator_class=DecoratedSweepOperator,
        **kwargs,
    )


def import_path(function: Callable[..., Any]) -> str | None:
    """`module:function`, of a function that any process with that module can import; else None."""
    module, name = function.__module__, function.__qualname__
    if module == "__main__" or module.startswith("unusual_prefix_") or "<" in name:
        return None
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    found: Any = inspect.getmodule(function)
    if spec is None or spec.origin != getattr(found, "__file__", None):
        return None
    for part in name.split("."):
        found = getattr(found, part, None)
    # In its own module a decorated function's name leads to the decorator's result.
    return f"{module}:{name}" if found is function else None


def check_alone(function: types.FunctionType) -> None:
    """See that a function needs nothing around it. Raises: SpecError naming what it takes from there."""
    code = function.__code__
    outer = sorted(
        {
            *(_global_names(code) & set(function.__globals__)),
            *code.co_freevars,
            *(name for name in _names_of_defaults(function) if _is_outer(name, function)),
        }
    )
    if outer:
        fix = (
            f"import or define it inside, or move {function.__name__} into a module that the job brings along"
        )
        problem = f"{function.__name__} uses {outer[0]!r} of the DAG's file, which is not on the cluster"
        raise SpecError("@task.sweep", problem, fix)


def _global_names(code: types.CodeType) -> set[str]:
    """The global names that a function reads, in functions inside it too; names of attributes are none."""
    names = {
        each.argval for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    inner = (each for each in code.co_consts if isinstance(each, types.CodeType))
    return names.union(*(_global_names(each) for each in inner))


def _is_outer(name: str, function: types.FunctionType) -> bool:
    return name in function.__globals__ or not hasattr(builtins, name)


def _names_of_defaults(function: types.FunctionType) -> set[str]:
    """The names that default arguments take from around the function: evaluated where it is defined."""
    try:
        _, node = _parsed(function)
    except SpecError:
        return set()  # without a source it can only run here, where its defaults are there
    given = [*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)]
    codes = (compile(ast.Expression(each), "<default>", "eval") for each in given)
    return set().union(*map(_global_names, codes))


def source_of(function: Callable[..., Any]) -> str:
    """The function as a module's text, without its decorators. Raises: SpecError where there is no source."""
    lines, node = _parsed(function)
    body = lines[node.lineno - 1 :]
    is_indented = body[0][:1].isspace()
    head = ["from __future__ import annotations", "", "if True:" if is_indented else ""]
    return "\n".join([*head, *body, ""])


def _parsed(function: Callable[..., Any]) -> tuple[list[str], ast.FunctionDef]:
    """Its source as lines of a module, and where in them it is defined. Raises: SpecError."""
    name = function.__name__
    try:
        lines = inspect.getsource(function).removesuffix("\n").split("\n")
    except (OSError, TypeError) as error:
        raise SpecError("@task.sweep", f"no source of {name} ({error})", "move it into a module") from None
    is_indented = lines[0][:1].isspace()
    if is_indented:
        # It stays so, under a line of its own: without the indent its texts of several lines would be others.
        lines = ["if True:", *lines]
    found: Any = None
    with suppress(SyntaxError):  # of a lambda, the source is the lines that it stands in
        found = ast.parse("\n".join(lines)).body[0]
    if is_indented and found is not None:
        found = found.body[0]
    if not isinstance(found, ast.FunctionDef):
        raise SpecError("@task.sweep", f"{name} is not written as a function", f"write def {name}(config): …")
    return lines, found
