"""The base of all operators: their parameters, and Airflow's calls.

Reading a DAG's file imports this; what a task does when it runs is in `work.py`, imported then.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import Asset, BaseOperator, BaseOperatorLink
from pydantic import SecretStr

from raysweep.errors import SpecError
from raysweep_airflow.compat import conf, renders_native
from raysweep_airflow.links import LINKS
from raysweep_airflow.mapped import handed_over, is_reference, without_references

if TYPE_CHECKING:
    from raysweep.jobs import JobOptions
    from raysweep.runs.reading.view import Outcome
    from raysweep.specs import AnyRequest, SweepSpec, TrainSpec
    from raysweep_airflow.lineage import Lineage
    from raysweep_airflow.tries import OnClear

    Spec = SweepSpec | TrainSpec

_ON_CLEAR = ("reuse", "resume", "retry", "restart")


class JobOperator(BaseOperator):
    """The operators' common part; see `SweepOperator` for the arguments."""

    template_fields: Sequence[str] = ("spec",)
    template_fields_renderers: ClassVar[dict[str, str]] = {"spec": "json"}
    operator_extra_links: Sequence[BaseOperatorLink] = LINKS
    ui_color = "#e8f4ea"
    models: ClassVar[Mapping[str, str]] = {"spec": "SweepSpec"}
    """The models of the fields with templates; empty for any JSON."""
    accept_partial: bool = True
    accept_failed: bool = False
    """True if a sweep counts however it ended, as in `raysweep.step.complete`."""
    deadline_from: str = "now"
    is_job_operator: ClassVar[bool] = True
    """True if `upstream` reads a job of it."""
    takes_job: bool = False
    """True if it takes the job of the sweep before it where it is given none."""

    def __init__(
        self,
        *,
        spec: Any,
        conn_id: str,
        address: str | Mapping[str, Any] | None,
        job: JobOptions | Mapping[str, Any] | None,
        on_clear: OnClear,
        deferrable: bool | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if on_clear not in _ON_CLEAR:
            raise SpecError("on_clear", f"{on_clear!r} is unknown", f"use one of {', '.join(_ON_CLEAR)}")
        if isinstance(address, str) and "://" in address:
            raise SpecError("address", "is an URL", "make a connection of it, and give its conn_id")
        self.spec = plain(spec)
        self.conn_id = conn_id
        self.address = address
        self.job = without_literals(job)
        hide_defaults(self.get_dag())
        self.on_clear: OnClear = on_clear
        if deferrable is None:
            deferrable = conf.getboolean("operators", "default_deferrable", fallback=False)
        self.deferrable = deferrable
        if not getattr(self, "_BaseOperator__from_mapped", False) and isinstance(
            spec, Mapping | str | PathLike
        ):
            from raysweep_airflow.parsing import check_spec

            check_spec(self.spec, self.models["spec"], self.task_id, self.get_dag(), self.added())
        # Of this process only: nothing is kept across a deferral.
        self.handed: frozenset[str] = frozenset()
        self.killed: Callable[[], None] | None = None
        self.result: Mapping[str, Any] | None = None

    @classmethod
    def partial(cls, **kwargs: Any) -> Any:
        """As that of every operator. What `job` has as text in `env_vars` is not shown in the stored DAG."""
        if "job" in kwargs:
            kwargs["job"] = without_literals(kwargs["job"])
        made = super().partial(**kwargs)
        hide_defaults(made.kwargs.get("dag"))
        return made

    # --- the parts that differ

    @abstractmethod
    def asked(self, context: Mapping[str, Any], fields: dict[str, Any]) -> Spec:
        """The spec to run, from the fields that the DAG gives. Raises: SpecError."""

    @abstractmethod
    def handed_on(self, context: Mapping[str, Any], outcome: Outcome) -> dict[str, Any]:
        """The result that goes downstream, as JSON data."""

    def added(self) -> dict[str, Any]:
        """Fields that the task itself adds to what the DAG gives, as far as their values matter."""
        return {}

    def known(self, context: Mapping[str, Any]) -> dict[str, Any] | None:
        """The result that goes downstream where nothing is to be run for it; None: run. May skip the task."""
        return None

    def check_begin(self, request: AnyRequest) -> None:
        """Check that there is still time to begin the run; may skip the task."""

    def key(self, context: Mapping[str, Any], asked: Spec) -> str:
        """The key of the run: the same for every try of this task in this run that asks for the same."""
        from raysweep_airflow.identity import TaskId

        return TaskId.of(context).key

    def read_spec(self, context: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of the spec, read from its file where it is one. Raises: SpecError."""
        from raysweep_airflow import documents

        return documents.read(self.spec, context, is_data="spec" in self.handed)

    def announce(self, context: Any, result: Mapping[str, Any]) -> None:
        """Say in the events of the task's outlets what it hands on. Raises: StorageError."""
        from raysweep_airflow.ends import extra_of

        for asset in self.outlets:
            if isinstance(asset, Asset):
                context["outlet_events"][asset].extra = extra_of(result)

    def options(self, options: JobOptions) -> JobOptions:
        """The options of the job, from those of the DAG."""
        return options

    # --- Airflow's calls

    def execute(self, context: Any) -> Any:
        """Submit or attach, and wait: in the triggerer, or here."""
        from raysweep_airflow.ends import explained
        from raysweep_airflow.work import Try

        with explained(self.log):
            return Try(self, context).run()

    def execute_complete(self, context: Any, event: dict[str, Any]) -> Any:
        """Complete the task with its end: the trigger's event, or that of the wait in this process."""
        from raysweep_airflow.ends import explained
        from raysweep_airflow.work import Try

        with explained(self.log):
            return Try(self, context).complete(event)

    def on_kill(self) -> None:
        """Cancel the job if the task is over by its state: SIGTERM also comes when a worker is shut down."""
        if self.killed is not None:
            self.killed()

    def lineage(self, result: Mapping[str, Any]) -> Lineage:
        """The data that the task has read and written, by its result. Raises: StorageError."""
        from raysweep_airflow.lineage import of_sweep

        return of_sweep(result)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """The lineage for the OpenLineage provider after the task; None where it handed nothing on."""
        return self.lineage(self.result).facets() if self.result is not None else None

    def _do_render_template_fields(
        self,
        parent: Any,
        template_fields: Iterable[str],
        context: Any,
        jinja_env: Any,
        seen_oids: set[int],
    ) -> None:
        from jinja2 import TemplateError

        own: Mapping[str, str] = {}
        if parent is self:
            own, self.handed = self.models, handed_over(self, context)
            seen_oids = without_references(self, template_fields, seen_oids)
        try:
            for name in template_fields:
                value = getattr(parent, name)
                if name in own and not callable(value):
                    if name not in self.handed or is_reference(value):
                        setattr(self, name, self.rendered(value, context, own[name], seen_oids))
                else:
                    super()._do_render_template_fields(parent, (name,), context, jinja_env, seen_oids)
        except TemplateError as error:
            from raysweep_airflow.documents import template_error
            from raysweep_airflow.ends import explained

            with explained(self.log):
                raise template_error(error, f"{self.task_id}.spec") from None

    def rendered(self, value: Any, context: Any, model: str, seen_oids: Collection[int] = frozenset()) -> Any:
        """A value with its templates rendered, each to the type of its field. Raises: TemplateError.

        `seen_oids`: the identities of values, however deep, that Airflow names as another task's data.
        """
        from raysweep_airflow.templates import Rendering, schema_of

        dag = self.get_dag()
        rendering = Rendering(
            environment=(
                dag.get_template_env(force_sandboxed=True) if dag is not None else self.get_template_env()
            ),
            context=context,
            is_native=renders_native(self, dag),
            schema=lambda: schema_of(model),
            other=lambda each: self.render_template(each, context),
            seen_oids=seen_oids,
        )
        return rendering.value(value)


def without_literals(job: Any) -> Any:
    """A job whose `env_vars` do not show what they hold; templates stay as they are, to be rendered.

    Airflow stores what a mapped operator and a DAG's `default_args` were given, readable for who reads DAGs.
    """
    variables = job.get("env_vars") if isinstance(job, Mapping) else None
    if not isinstance(variables, Mapping):
        return job
    return {**job, "env_vars": {name: _hidden(value) for name, value in variables.items()}}


def _hidden(value: Any) -> Any:
    is_literal = isinstance(value, str) and "{{" not in value and "{%" not in value
    return SecretStr(value) if is_literal else value


def hide_defaults(dag: Any) -> None:
    """The same for the `default_args` of the DAG: operators are given them, and the DAG stores them too."""
    defaults = getattr(dag, "default_args", None)
    if isinstance(defaults, dict) and "job" in defaults:
        defaults["job"] = without_literals(defaults["job"])


def plain(given: Any) -> Any:
    """A spec object as plain JSON data, in which templates can be; a path as text; anything else as it is."""
    dump = getattr(given, "to_dict", None)
    if callable(dump):
        return dump()
    path = getattr(given, "__fspath__", None)
    return path() if callable(path) else given
