"""The operator behind gate or judge: a person decides in Airflow's pages about what passed.

It is the standard provider's `ApprovalOperator`: while it waits the task is `awaiting_input`, and holds no
slot. The decision itself is in the champion's file (`raysweep.pipeline`): the form is one way to it,
`raysweep approve` another, and silence a third. Whichever comes first counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final

from airflow.sdk import Param
from airflow.sdk.definitions.param import ParamsDict

from raysweep.errors import SpecError, StorageUnavailableError, one_line
from raysweep_airflow.arguments import checked, registered
from raysweep_airflow.compat import AirflowException, TaskAwaitingInput, store_of
from raysweep_airflow.links import page_url, report_url
from raysweep_airflow.mapped import handed_over, is_reference, without_references
from raysweep_airflow.upstream import is_behind_judge

try:
    from airflow.providers.standard.operators.hitl import ApprovalOperator
    from airflow.providers.standard.triggers.hitl import HITLTrigger
    from airflow.sdk.timezone import utcnow
except (
    ImportError,
    AirflowException,
) as error:  # the provider says by one of the two that Airflow is too old
    problem = f"requires Airflow 3.1 and its standard provider ({error})"
    raise SpecError("ApproveOperator", problem, "update Airflow, or decide with `raysweep approve`") from None

if TYPE_CHECKING:
    from raysweep.outcome import Decision
    from raysweep.pipeline.candidate import Candidate

ANSWER_KEY: Final = "raysweep_answer"
OURS: Final = ("subject", "body", "options", "multiple", "defaults", "response_timeout", "params")
LATE_S: Final = 1.0
"""The time after the moment for a decision at which it looks again: then silence has decided."""
SOONEST_S: Final = 10.0
"""It waits no shorter: the scheduler takes a task that returns before it was seen to leave for a failure."""


def _of_task(params: Any) -> Any:
    """The params without those of the DAG, which Airflow puts in, and which Airflow 3.1 does not mark."""
    if not isinstance(params, ParamsDict):
        return params
    by_source = getattr(ParamsDict, "filter_params_by_source", None)
    return {} if by_source is None else by_source(params, "task")


class ApproveOperator(ApprovalOperator):
    """Wait until what passed gate or judge is approved or rejected; the result has the decision in it.

    The form in Airflow has the evidence, and a field for a note. Who answers it decides, once, unless
    there is a decision already: of `raysweep approve`, or of silence. Rejected, not promoted by the gate, or
    not released by the judge, the tasks downstream are skipped. What needs no approval, or has it already,
    passes at once.

    Args:
        outcome: What the `GateOperator(..., approval=...)` returned: `gate.output`; with `after: judge`, what
            the `JudgeOperator` returned.
        assigned_users: Who may decide, as `[{"id": "ann", "name": "Ann"}]`; default: who may edit the DAG's
            runs.
        registry: Where what is promoted is registered with its checkpoint, if no training follows; as of the
            `TrainOperator`. Also behind a gate without approval.
        check_every: How often it looks for a decision that was made outside of Airflow; 10 s at least.
        ignore_downstream_trigger_rules, fail_on_reject, notifiers: As of Airflow's `ApprovalOperator`.

    Raises: SpecError: An argument is what the gate and the champion's file say.
    """

    template_fields: Sequence[str] = ("outcome", "registry")
    template_fields_renderers: ClassVar[dict[str, str]] = dict.fromkeys(template_fields, "json")
    custom_operator_name = "ApproveOperator"
    ui_color = "#e8f4ea"

    def __init__(
        self,
        *,
        outcome: Any,
        assigned_users: Any = None,
        registry: Any = None,
        check_every: timedelta = timedelta(minutes=5),
        **kwargs: Any,
    ) -> None:
        own = _of_task(kwargs.pop("params", None) or {})
        for name in OURS:
            if name in kwargs or (name == "params" and own):
                fix = "leave it out; GateOperator(approval={...}) says how long it waits, and what silence is"
                raise SpecError(name, "cannot be set", fix)
        if check_every.total_seconds() < SOONEST_S:
            raise SpecError("check_every", f"is {check_every}", f"give {SOONEST_S:g} seconds or more")
        super().__init__(
            subject="Promote the candidate?",
            params={"note": Param("", type="string", description="The reason, stored in the evidence.")},
            assigned_users=assigned_users,
            response_timeout=check_every,
            **kwargs,
        )
        self.outcome = outcome
        self.check_every = check_every
        self.registry = checked(registry)
        # Of this process only.
        self.result: dict[str, Any] | None = None

    def _do_render_template_fields(
        self, parent: Any, template_fields: Iterable[str], context: Any, jinja_env: Any, seen_oids: set[int]
    ) -> None:
        if parent is self:
            handed = handed_over(self, context)
            seen_oids = without_references(self, template_fields, seen_oids)
            template_fields = [
                each for each in template_fields if each not in handed or is_reference(getattr(self, each))
            ]
        super()._do_render_template_fields(parent, template_fields, context, jinja_env, seen_oids)

    def execute(self, context: Any) -> Any:
        """Pass on what needs no decision, or has one; else ask for it, and wait."""
        from raysweep.outcome import Decision
        from raysweep.pipeline.candidate import as_stored, find_candidate
        from raysweep_airflow.ends import explained

        with explained(self.log):
            is_judged = self._is_judged()
            candidate = find_candidate(self.outcome, is_judged=is_judged)
            if candidate is None:
                return self._end(context, as_stored(self.outcome, is_judged=is_judged))
            # Of an earlier try, which could not write it down.
            kept = store_of(context).get(ANSWER_KEY)
            decision = candidate.decide(Decision.model_validate(kept) if kept else None)
            if decision is not None:
                return self._decided(context, candidate, decision)
            self.subject = one_line(candidate.question, 200)
            self.body = self._body(context, candidate)
        self.log.info("%s: `raysweep approve` decides too; %s", candidate.night, candidate.approval)
        self.response_timeout = self._until_next(candidate)
        return super().execute(context)

    def execute_complete(self, context: Any, event: dict[str, Any]) -> Any:
        """Write the answer down; without one see whether there is a decision, and wait on."""
        from raysweep.pipeline.candidate import as_stored, find_candidate
        from raysweep_airflow.ends import explained

        asked, is_judged = self._answer(event), self._is_judged()
        with explained(self.log):
            if asked is not None:
                # The next try has it where the storage does not answer now.
                store_of(context).set(ANSWER_KEY, asked.model_dump(mode="json"))
            try:
                candidate = find_candidate(self.outcome, is_judged=is_judged)
                decision = candidate.decide(asked) if candidate is not None else None
            except StorageUnavailableError as error:
                if asked is not None:
                    raise
                self.log.warning("%s; looking again", error)
                return self._wait_on(context, self.check_every)
            if candidate is None:
                # The gate or the judge was cleared meanwhile, and has decided anew.
                return self._end(context, as_stored(self.outcome, is_judged=is_judged))
            if decision is not None:
                return self._decided(context, candidate, decision, asked)
        return self._wait_on(context, self._until_next(candidate))

    def _is_judged(self) -> bool | None:
        """True where it stands behind a judge, whatever it was handed."""
        return is_behind_judge(self) or None

    def _answer(self, event: Mapping[str, Any]) -> Decision | None:
        """A person's answer; None where no one has answered. Raises what Airflow does of a bad answer."""
        from raysweep.outcome import Decision

        if event.get("error_type") == "timeout":
            return None
        if "error" in event:
            self.process_trigger_event_error(dict(event))
        chosen, given = list(event["chosen_options"]), event.get("params_input") or {}
        self.validate_chosen_options(chosen)
        self.validate_params_input(given)
        user, at = event.get("responded_by_user") or {}, event.get("responded_at")
        return Decision(
            approved=chosen == [self.APPROVE],
            by=str(user.get("name") or user.get("id") or "Airflow"),
            at=at.timestamp() if isinstance(at, datetime) else time.time(),
            note=" ".join(str(given.get("note") or "").split()),
        )

    def _decided(
        self, context: Any, candidate: Candidate, decision: Decision, asked: Decision | None = None
    ) -> Any:
        if asked is not None and asked != decision:
            self.log.warning("this answer comes too late (%s): it is %s", asked, decision)
        self.log.info("approval of %s: %s", candidate.night, decision)
        return self._end(context, candidate.told(self.outcome), decision)

    def _end(self, context: Any, result: dict[str, Any], decision: Decision | None = None) -> dict[str, Any]:
        """Hand the result on; skip what is downstream where nothing is promoted, or released."""
        from raysweep_airflow.champion_assets import announce

        result |= registered(self.registry, result, self.log)
        self.result = result
        announce(self, context, result)
        if result.get("released", result.get("promoted")) is not False:
            return result
        verdict = result.get("judgement") or result.get("gate") or {}
        self.log.info("%s", verdict.get("why") or "not promoted")
        # Skipping ends the task by an exception: its result goes first.
        context["ti"].xcom_push(key="return_value", value=result)
        at = datetime.fromtimestamp(decision.at, tz=utcnow().tzinfo) if decision is not None else utcnow()
        refused = {"chosen_options": [self.REJECT], "params_input": {}, "responded_at": at}
        super().execute_complete(context, {**refused, "responded_by_user": None})
        return result

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """The lineage for the OpenLineage provider after the task; None where it handed nothing on."""
        from raysweep_airflow.lineage import of_gate

        return of_gate(self.result).facets() if self.result is not None else None

    # --- waiting

    def _until_next(self, candidate: Candidate) -> timedelta:
        """The time until it looks again."""
        left_s = candidate.approval.until - time.time() + LATE_S
        return min(self.check_every, timedelta(seconds=max(SOONEST_S, left_s)))

    def _wait_on(self, context: Any, timeout: timedelta) -> Any:
        """Wait for the same answer; to ask anew would delete one that was given since."""
        if TaskAwaitingInput is not None:
            raise TaskAwaitingInput(method_name="execute_complete", timeout=timeout)
        trigger = HITLTrigger(
            ti_id=context["ti"].id,
            options=self.options,
            params=self.serialized_params,
            multiple=False,
            timeout_datetime=utcnow() + timeout,
        )
        return self.defer(trigger=trigger, method_name="execute_complete")

    def _body(self, context: Any, candidate: Candidate) -> str:
        """The ways to decide, links, and the evidence, in Markdown."""
        from raysweep.documents.quoting import code_block, markdown
        from raysweep.pipeline.approval import approve_command

        ends = markdown(str(candidate.approval))
        command = code_block(approve_command(candidate.night, candidate.store.url))
        links = [f"[{name}]({url})" for name, url in self._links(context) if url]
        head = [f"It {ends}.", "", "From a terminal (or with `--reject`):", "", command, ""]
        return "\n".join([*head, *([", ".join(links), ""] if links else []), candidate.page])

    def _links(self, context: Any) -> list[tuple[str, str]]:
        """The pages of sweep, gate and judge, if they are tasks before this one."""
        ti, found = context["ti"], []
        names = {"JudgeOperator": "Judge", "GateOperator": "Gate", "SweepOperator": "Sweep"}
        names["@task.sweep"] = "Sweep"
        for task in self.get_flat_relatives(upstream=True):
            name = names.get(str(getattr(task, "custom_operator_name", "")))
            if name is not None:
                where = (ti.dag_id, ti.run_id, task.task_id, getattr(ti, "map_index", -1))
                found.append((name, page_url(*where)))
                found += [("Report", report_url(*where))] if name == "Sweep" else []
        return found
