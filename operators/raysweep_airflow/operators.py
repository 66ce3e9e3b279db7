"""The operators: a sweep, the gate behind it, the full-scale training.

What needs specs and outcomes is imported when a task runs, so that DAG files are read quickly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from raysweep.errors import SpecError
from raysweep_airflow.arguments import (
    check_program,
    checked,
    checked_deadline,
    checked_gate,
    ending,
    registered,
)
from raysweep_airflow.base import JobOperator, plain
from raysweep_airflow.compat import AirflowSkipException
from raysweep_airflow.links import TRAIN_LINKS
from raysweep_airflow.parsing import is_open
from raysweep_airflow.provider import DEFAULT_CONN_ID
from raysweep_airflow.upstream import is_judged

if TYPE_CHECKING:
    from raysweep.jobs import JobOptions
    from raysweep.outcome import GateOutcome, SweepOutcome, TrainOutcome
    from raysweep.pipeline import GateRun
    from raysweep.runs.reading.view import Outcome
    from raysweep.specs import AnyRequest, RunRequest, SweepSpec, TrainSpec
    from raysweep.specs.approval import ApprovalSpec
    from raysweep_airflow.lineage import Lineage
    from raysweep_airflow.tries import OnClear

    Spec = SweepSpec | TrainSpec
    JobGiven = JobOptions | Mapping[str, Any] | None


class SweepOperator(JobOperator):
    """Run a sweep as a job of a Ray cluster; the task's result is its outcome as JSON below 16 KiB (`brief`).

    One task of one run is one sweep, however often it is tried: its key is made of dag, task, run and map
    index. A new try attaches to the job, or resumes it where the cluster was lost. What a retry cannot help
    fails at once; a task whose worker or triggerer dies takes nothing with it.

    Args:
        spec: A `SweepSpec`, its fields, or the path of a YAML or JSON file beside the DAG. Templates in it
            are rendered, those of a file too. With `tune`: fields that all its sweeps get, such as
            `storage_path`.
        tune: Instead, the path of a Python program that calls Ray Tune, beside the DAG, or a list of it and
            its arguments. It runs in the task's own process as it is, with its sweeps under the task's key:
            a new try has those that ended at once, and resumes the one that was cut. The result is that of
            its last sweep; with several, `sweeps` names all. Default of `address`: `"local"`.
        conn_id: The connection, of type `raysweep`.
        address: Instead of a connection: `"here"` runs it in the task's own process without Ray, `"local"`
            on an embedded Ray there, never deferred; `"auto"` and `"host:port"` on the cluster that the
            worker is in. All but `"here"` need Ray.
            `"rayjob:night.yaml"`, or a mapping with `rayjob` in it: as a job of a cluster that is brought up
            on Kubernetes for this task, by a manifest beside the DAG, and removed after it.
        job: Code, environment and place of the job: a `JobOptions` or its fields. Relative paths are
            beside the DAG; templates are rendered, and never shown.
        accept_partial: Whether a sweep that its deadline or a budget ended counts, with the best so far.
        on_clear: What clearing the task does with a result: hand it on again (`reuse`), continue if its
            limit was moved (`resume`), run its failed trials again (`retry`), or begin anew (`restart`). One
            that was cancelled continues, one that failed begins anew, but for `retry`. What still runs is
            attached to.
        deadline_from: From when `stop.deadline: 06:00 Europe/Berlin` counts: `now`, the first try, or
            `logical_date`. In a run of a past day, as in a backfill, that moment is over: the sweep then has
            as long as it would have had on that day, from its first try on.
        top_k: How many of the best trials the result lists.
        deferrable: Whether the task gives up its worker slot while it waits; default: Airflow's
            `[operators] default_deferrable`.
    """

    # Subclasses too: by it the page knows them.
    custom_operator_name = "SweepOperator"

    def __init__(
        self,
        *,
        spec: Any = None,
        tune: str | PathLike[str] | Sequence[str] | None = None,
        conn_id: str = DEFAULT_CONN_ID,
        address: str | Mapping[str, Any] | None = None,
        job: JobGiven = None,
        accept_partial: bool = True,
        on_clear: OnClear = "reuse",
        deadline_from: Literal["now", "logical_date"] = "now",
        top_k: int = 5,
        deferrable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        if tune is not None:
            check_program(tune, conn_id=conn_id, address=address, job=job, on_clear=on_clear)
            address = address or "local"
        elif spec is None:
            raise SpecError("spec", "is missing", "give a spec, or the path of a Ray Tune program as tune")
        super().__init__(
            spec=spec if tune is None else None,
            conn_id=conn_id,
            address=address,
            job=job,
            on_clear=on_clear,
            deferrable=deferrable,
            **kwargs,
        )
        if tune is not None:
            self.spec = plain(spec or {})
        self.tune: tuple[str, ...] = ()
        """The program and its arguments."""
        if tune is not None:
            self.tune = (fspath(tune),) if isinstance(tune, str | PathLike) else tuple(map(str, tune))
        if deadline_from not in ("now", "logical_date"):
            raise SpecError("deadline_from", f"{deadline_from!r} is unknown", "use now or logical_date")
        self.accept_partial = accept_partial
        self.deadline_from = deadline_from
        self.top_k = top_k

    def asked(self, context: Mapping[str, Any], fields: dict[str, Any]) -> SweepSpec:
        from raysweep.specs import SweepSpec

        return SweepSpec.from_any(fields)

    def handed_on(self, context: Mapping[str, Any], outcome: Outcome) -> dict[str, Any]:
        from raysweep.step import brief

        return brief(outcome, top_k=self.top_k)

    def execute(self, context: Any) -> Any:
        """Submit or attach, and wait; or run the program."""
        if not self.tune:
            return super().execute(context)
        from raysweep_airflow.ends import explained
        from raysweep_airflow.program import ProgramTry

        with explained(self.log):
            return ProgramTry(self, context).run()


class GateOperator(JobOperator):
    """Run the best of a sweep again, beside the champion of earlier nights: is it worth the training?

    The result is the sweep's, with `promoted` and the verdict in it; a `TrainOperator` that gets it is
    skipped where it was not promoted. With a `JudgeOperator` behind the training, what passes is champion
    only once its model has passed the judgement.

    Args:
        spec: The sweep's spec, as the `SweepOperator` got it.
        outcome: What that returned: `sweep.output`.
        gate: What the best has to show: the fields of a `GateSpec`.
        approval: `required`, or the fields of an `ApprovalSpec`: what passes is promoted once a person has
            approved, which an `ApproveOperator` behind this waits for. With `after: judge` it stands behind
            the `JudgeOperator`. Default: at once.
        deadline: When the night ends, as a `PipelineSpec` has it: `06:00 Europe/Berlin`, the next one after
            the sweep began. A gate that still runs then is cut short. Default: `execution_timeout` alone.
        conn_id, address, deferrable: As of the `SweepOperator`.
        job: The same; default: the job of the sweep before it in the DAG. `{}` is none.
    """

    custom_operator_name = "GateOperator"
    takes_job = True
    template_fields: Sequence[str] = (
        "spec",
        "outcome",
        "gate",
        "approval",
        "deadline",
    )
    models: ClassVar[Mapping[str, str]] = {
        "spec": "SweepSpec",
        "outcome": "",
        "gate": "GateSpec",
        "approval": "",
        "deadline": "",
    }
    template_fields_renderers: ClassVar[dict[str, str]] = dict.fromkeys(template_fields, "json")

    def __init__(
        self,
        *,
        spec: Any,
        outcome: Any,
        gate: Any = None,
        approval: Any = None,
        deadline: Any = None,
        conn_id: str = DEFAULT_CONN_ID,
        address: str | Mapping[str, Any] | None = None,
        job: JobGiven = None,
        deferrable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            spec=spec,
            conn_id=conn_id,
            address=address,
            job=job,
            on_clear="reuse",
            deferrable=deferrable,
            **kwargs,
        )
        # What was cut short decides nothing: a clear resumes it.
        self.accept_partial = False
        self.outcome = outcome
        self.gate, self.approval = checked_gate(_fields(gate), spec), _fields(approval)
        if self.approval and not is_open(self.approval):
            from raysweep.specs.approval import read_approval

            # Whether a judge follows is known once the DAG is whole.
            read_approval(self.approval, has_judge=True)
        self.deadline = checked_deadline(deadline)

    def prepare_template(self) -> None:
        """Airflow calls this once the DAG is whole: an approval after a judge requires one in it."""
        super().prepare_template()
        if self.approval and not is_open(self.approval):
            self._approval()

    def known(self, context: Mapping[str, Any]) -> dict[str, Any] | None:
        gate = self._gate(context)
        return self._result(gate, gate.verdict) if gate.verdict is not None else None

    def key(self, context: Mapping[str, Any], asked: Spec) -> str:
        return self._gate(context).request.run.key

    def asked(self, context: Mapping[str, Any], fields: dict[str, Any]) -> SweepSpec:
        return self._gate(context).request.spec

    def handed_on(self, context: Mapping[str, Any], outcome: Outcome) -> dict[str, Any]:
        gate = self._gate(context)
        return self._result(gate, gate.settle(cast("SweepOutcome", outcome)))

    def _result(self, gate: GateRun, verdict: GateOutcome) -> dict[str, Any]:
        from raysweep.pipeline import handed_on, with_gate
        from raysweep.step import brief

        self.log.info("gate: %s", verdict.why)
        listed = len(self.outcome.get("top_k", ())) if isinstance(self.outcome, Mapping) else 5
        return brief(handed_on(with_gate(gate.outcome, verdict)), top_k=max(1, listed))

    def _approval(self) -> ApprovalSpec | None:
        from raysweep.specs.approval import read_approval

        return read_approval(self.approval, has_judge=is_judged(self))

    def announce(self, context: Any, result: Mapping[str, Any]) -> None:
        from raysweep_airflow.champion_assets import announce

        announce(self, context, result)

    def lineage(self, result: Mapping[str, Any]) -> Lineage:
        from raysweep_airflow.lineage import of_gate

        return of_gate(result)

    def _gate(self, context: Mapping[str, Any]) -> GateRun:
        """The gate as it stands; stored where the sweep is."""
        from raysweep.pipeline import prepare_gate

        ends_at = ending(self.deadline, self.outcome)
        given = self.read_spec(context), self.outcome, self.gate, self._approval(), ends_at
        return prepare_gate(*given, is_judged=is_judged(self))


class TrainOperator(JobOperator):
    """Train one config at full scale as a job of a Ray cluster; the result is its outcome as JSON (`brief`).

    A new try continues from the newest checkpoint; where the sweep has continued and hands on another config,
    it is another training. Skipped where a gate did not promote the sweep's best.

    Args:
        spec: A `TrainSpec`, its fields, or the path of a YAML or JSON file beside the DAG. Its own
            `config` wins over the sweep's.
        outcome: Whose best config is trained: what a `SweepOperator` or `GateOperator` returned, or one of
            its `top_k`; default: the spec's own config.
        registry: Where the model of a promoted champion is registered: `mlflow`, `{"mlflow": {...}}` or an
            import path, as a pipeline's. Default: nowhere.
        deadline: As of the `GateOperator`, the training ends by then; one that, by how long earlier ones
            took, would not is not begun: the task is skipped, and its log has the reason.
        conn_id, address, job, on_clear, deferrable: As of the `GateOperator` and the `SweepOperator`.
    """

    custom_operator_name = "TrainOperator"
    takes_job = True
    operator_extra_links = TRAIN_LINKS
    template_fields: Sequence[str] = ("spec", "outcome", "registry", "deadline")
    models: ClassVar[Mapping[str, str]] = {
        "spec": "TrainSpec",
        "outcome": "",
        "registry": "",
        "deadline": "",
    }
    template_fields_renderers: ClassVar[dict[str, str]] = dict.fromkeys(template_fields, "json")

    def __init__(
        self,
        *,
        spec: Any,
        outcome: Any = None,
        registry: Any = None,
        deadline: Any = None,
        conn_id: str = DEFAULT_CONN_ID,
        address: str | Mapping[str, Any] | None = None,
        job: JobGiven = None,
        on_clear: OnClear = "reuse",
        deferrable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            spec=spec,
            conn_id=conn_id,
            address=address,
            job=job,
            on_clear=on_clear,
            deferrable=deferrable,
            **kwargs,
        )
        self.outcome = outcome
        self.is_handed = outcome is not None
        # Of this process only: what was read, with the digests of its content.
        self.data: tuple[tuple[str, str], ...] = ()
        self.registry = checked(registry)
        self.deadline = checked_deadline(deadline)

    def known(self, context: Mapping[str, Any]) -> dict[str, Any] | None:
        from raysweep.step import why_not_trained

        if self.is_handed and self.outcome is None:
            # Marked as success, it has decided nothing; the spec's own config is not what was asked for.
            fix = "clear the task before this one, which returned nothing"
            raise SpecError("outcome", "is empty", fix)
        if why := why_not_trained(self.outcome):
            raise AirflowSkipException(why)
        return None

    def check_begin(self, request: AnyRequest) -> None:
        from raysweep.pipeline.night_end import why_not_begun
        from raysweep.pipeline.rollback import why_undone

        training, ends_at = cast("RunRequest[TrainSpec]", request), ending(self.deadline, self.outcome)
        if why := why_undone(training, self.outcome) or why_not_begun(training, ends_at):
            raise AirflowSkipException(why)

    def asked(self, context: Mapping[str, Any], fields: dict[str, Any]) -> TrainSpec:
        from raysweep.pipeline import with_best
        from raysweep.pipeline.night_end import ending_by
        from raysweep.specs import TrainSpec

        ends_at = ending(self.deadline, self.outcome)
        return with_best(ending_by(TrainSpec.from_any(fields), ends_at, self.outcome), self.outcome)

    def key(self, context: Mapping[str, Any], asked: Spec) -> str:
        from raysweep.pipeline import training_key

        return training_key(cast("TrainSpec", asked), self.outcome, super().key(context, asked))

    def handed_on(self, context: Mapping[str, Any], outcome: Outcome) -> dict[str, Any]:
        from raysweep.outcome.showing.formatting import show_config
        from raysweep.pipeline.registering import record_training
        from raysweep.step import brief

        trained = cast("TrainOutcome", outcome)
        record_training(self.outcome, trained)
        self.log.info("metrics: %s", show_config(trained.metrics) or "none were reported")
        if trained.carried is not None:
            self.log.info("carried: %s", trained.carried.line)
        if trained.predicted is not None:
            self.log.info("predicted: %s", trained.predicted)
        self.log.info("model: %s", trained.model_line)
        self.data = tuple((each.uri, each.digest) for each in trained.data)
        more = registered(self.registry, self.outcome or {}, self.log, trained)
        return brief(outcome) | more

    def lineage(self, result: Mapping[str, Any]) -> Lineage:
        from raysweep_airflow.lineage import DataSet, of_training

        return of_training(self.outcome, result, tuple(DataSet(*each) for each in self.data))


def _fields(given: Any) -> Any:
    """A model as its fields; what else there is as it is."""
    dump = getattr(given, "model_dump", None)
    return dump(mode="json") if callable(dump) else given
