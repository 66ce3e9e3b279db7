"""The operator behind the training: only a model that passes its judgement is released."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from raysweep.errors import SpecError
from raysweep_airflow.arguments import checked, checked_judge, registered
from raysweep_airflow.base import JobOperator
from raysweep_airflow.compat import AirflowSkipException
from raysweep_airflow.provider import DEFAULT_CONN_ID

if TYPE_CHECKING:
    from raysweep.jobs import JobOptions
    from raysweep.outcome import SweepOutcome
    from raysweep.outcome.judgement import Judgement
    from raysweep.pipeline import JudgeRun
    from raysweep.runs.reading.view import Outcome
    from raysweep.specs import SweepSpec, TrainSpec
    from raysweep_airflow.lineage import Lineage

    Spec = SweepSpec | TrainSpec


class JudgeOperator(JobOperator):
    """Judge the model of a training beside the released one, on the same data, and release it if it passes.

    The result is the gate's, with `judgement`, `model_uri`, and `released`. A model that does not pass keeps
    the old one released, and the task succeeds. Cleared, it judges again where an evaluation failed or was
    cut; any other judgement stands. The worker needs `raysweep[judge]`, and reads the model.

    Args:
        spec: The sweep's spec, as the `GateOperator` got it: its webhooks hear of a release.
        outcome: What the `GateOperator` returned: `gate.output`. With `approval={"after": "judge"}` there,
            what passes is released once a person has approved, which an `ApproveOperator` behind this waits
            for.
        trained: What the `TrainOperator` returned: `train.output`.
        judge: What the model has to show: the fields of a `JudgeSpec`, its `deadline` among them.
        registry: As of the `TrainOperator`; it gets what is released.
        conn_id, address, deferrable: As of the `SweepOperator`.
        job: The same; default: the job of the nearest task before it in the DAG. `{}` is none.
    """

    custom_operator_name = "JudgeOperator"
    takes_job = True
    accept_failed = True
    template_fields: Sequence[str] = ("spec", "outcome", "trained", "judge", "registry")
    models: ClassVar[Mapping[str, str]] = {
        "spec": "SweepSpec",
        "outcome": "",
        "trained": "",
        "judge": "JudgeSpec",
        "registry": "",
    }
    template_fields_renderers: ClassVar[dict[str, str]] = dict.fromkeys(template_fields, "json")

    def __init__(
        self,
        *,
        spec: Any,
        outcome: Any,
        trained: Any,
        judge: Any,
        registry: Any = None,
        conn_id: str = DEFAULT_CONN_ID,
        address: str | Mapping[str, Any] | None = None,
        job: JobOptions | Mapping[str, Any] | None = None,
        deferrable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            spec=spec,
            conn_id=conn_id,
            address=address,
            job=job,
            on_clear="retry",
            deferrable=deferrable,
            **kwargs,
        )
        self.outcome = outcome
        self.trained = trained
        self.judge = checked_judge(judge)
        self.registry = checked(registry)
        # Of this process only: each look at a model's files reads them.
        self.prepared: JudgeRun | None = None

    def known(self, context: Mapping[str, Any]) -> dict[str, Any] | None:
        outcome = self.outcome if isinstance(self.outcome, Mapping) else {}
        if outcome.get("promoted") is False:
            why = (outcome.get("gate") or {}).get("why")
            raise AirflowSkipException(f"judgement skipped: {why or 'the gate promoted nothing'}")
        if not self.trained:
            fix = "clear the training, which returned nothing"
            raise SpecError("trained", "is empty", fix)
        self.prepared = None
        run = self._run(context)
        return self._result(run.verdict) if run.verdict is not None else None

    def key(self, context: Mapping[str, Any], asked: Spec) -> str:
        return self._run(context).request.run.key

    def asked(self, context: Mapping[str, Any], fields: dict[str, Any]) -> SweepSpec:
        return self._run(context).request.spec

    def handed_on(self, context: Mapping[str, Any], outcome: Outcome) -> dict[str, Any]:
        return self._result(self._run(context).settle(cast("SweepOutcome", outcome)))

    def _result(self, judgement: Judgement) -> dict[str, Any]:
        from raysweep.pipeline.candidate import judged_brief

        self.log.info("judge: %s", judgement.why)
        result = judged_brief(self.outcome)
        return result | registered(self.registry, result, self.log)

    def announce(self, context: Any, result: Mapping[str, Any]) -> None:
        from raysweep_airflow.champion_assets import announce

        announce(self, context, result)

    def lineage(self, result: Mapping[str, Any]) -> Lineage:
        from raysweep_airflow.lineage import of_gate

        return of_gate(result)

    def _run(self, context: Mapping[str, Any]) -> JudgeRun:
        """The judgement as it stands; stored where the sweep is."""
        if self.prepared is None:
            from raysweep.pipeline import prepare_judge
            from raysweep.specs import SweepSpec

            self.prepared = prepare_judge(
                self.judge,
                self.outcome,
                self.trained,
                sweep=SweepSpec.from_any(self.read_spec(context)),
            )
        return self.prepared
