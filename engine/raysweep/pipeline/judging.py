"""The judge: the model of a night's training beside the released one, on the same data.

Both are evaluated as trials of a sweep of its own, whose key follows from the night's, the judge's spec and
the files of both models: one that was cut short continues, and other files are another judgement. The verdict
is an event of the line of champions. A model that passed is released by that event: its config is champion,
and the registry follows. Each look at a model's files reads them once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from raysweep.documents.digest import digest_of
from raysweep.errors import RaysweepError, SpecError, StorageUnavailableError, SweepFailedError, one_line
from raysweep.hooks.events import Promoted
from raysweep.jobs.options import JobOptions
from raysweep.judge.comparison import check_scipy
from raysweep.judge.figures import Figures, decode_figures
from raysweep.judge.model import ModelChangedError, digest_of_model, why_changed
from raysweep.judge.trial import FIGURE, FILE
from raysweep.judge.verdict import decide, refuse
from raysweep.outcome import SweepOutcome, SweepProgress, TrainOutcome, TrialOutcome
from raysweep.outcome.gate import show_time
from raysweep.outcome.judgement import JudgedModel, Judgement, Reason
from raysweep.pipeline.announcement import announce
from raysweep.pipeline.approval import POLL_S, approve_command
from raysweep.pipeline.night_end import night_end
from raysweep.pipeline.registering import find_record
from raysweep.run import run_sweep
from raysweep.runs.across_runs.approvals import decide_night
from raysweep.runs.across_runs.champions import Champion, ChampionRecord, Line, Night, Waiting, read_champion
from raysweep.runs.across_runs.events import Event, ModelJudged
from raysweep.runs.across_runs.line_journal import LineJournal, change_line
from raysweep.runs.across_runs.releases import this_user
from raysweep.runs.reading.view import RunView
from raysweep.specs import RunRequest, SweepSpec
from raysweep.specs.approval import ApprovalSpec
from raysweep.specs.identity import key_within
from raysweep.specs.judge import JudgeSpec
from raysweep.step.brief import stored_outcome
from raysweep.storage.checkpoints.store import open_checkpoint
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store

log = logging.getLogger("raysweep")
EVALUATE: Final = "raysweep.judge.trial:evaluate_model"
_NEW, _RELEASED = "the new model", "the released model"


def run_judge(
    judge: JudgeSpec | Mapping[str, Any],
    given: SweepOutcome | Mapping[str, Any],
    trained: TrainOutcome | Mapping[str, Any],
    *,
    address: Any = None,
    on_progress: Callable[[SweepProgress], None] | None = None,
    num_cpus: float | None = None,
    job: JobOptions | None = None,
    approval: ApprovalSpec | None = None,
    ends_at: datetime | None = None,
    sweep: SweepSpec | None = None,
) -> Judgement:
    """Judge the model of a night's training, and release it if it passes.

    Args:
        judge: What it has to show.
        given: The sweep's outcome with the verdict of its gate, or the brief of it.
        trained: The training of what the gate promoted, or the brief of it.
        address, on_progress, num_cpus, job: As in `run_sweep`, for the sweep that evaluates the models.
        approval: What passes is released once it is approved (`raysweep approve`). Default: as the line of
            champions has it from the gate, which counts before this.
        ends_at: When the night ends: a judgement that runs still then releases nothing.
        sweep: The sweep's spec, whose webhooks hear of a release. Default: none does; the stored spec has
            their addresses masked.

    Raises:
        SpecError: Sweep, gate and training do not belong together, or the gate expected no judgement.
        SweepFailedError: The evaluation was cancelled: the next run continues it.
        RaysweepError: As `run_sweep`.
    """
    run = prepare_judge(judge, given, trained, approval=approval, ends_at=ends_at, sweep=sweep)
    if run.verdict is not None:
        return run.verdict
    asked = run.request
    again = run_sweep(
        asked.spec,
        key=asked.run.key,
        address=address,
        on_progress=on_progress,
        num_cpus=num_cpus,
        resume_cancelled=True,
        retry="failed",
        job=job,
    )
    return run.settle(again)


def await_release(
    given: SweepOutcome | Mapping[str, Any],
    judgement: Judgement,
    *,
    on_wait: Callable[[str], None] = log.warning,
    poll_s: float = POLL_S,
) -> None:
    """Wait for the approval of a model that passed its judgement; at once where none is awaited.

    Args:
        given: The sweep's outcome with the verdict of its gate, or the brief of it.
        judgement: That of the model.
        on_wait: Called once with a line that says how to decide.
        poll_s: How often the storage is asked.

    Raises: StorageError: The decision cannot be read.
    """
    store, line, night = find_night(given, stored_outcome(given))
    if night.is_waiting:
        place = f"{line.name}@{night.key or night.sweep_id}"
        assert night.waiting is not None
        until = f"waits for approval until {show_time(night.waiting.until)}"
        on_wait(f"{judgement.why}; {until}: {approve_command(place, store.url)} (or --reject)")
    while night.is_waiting:
        try:
            if decide_night(store, line, night.sweep_id, night.gate) is not None:
                return
        except StorageUnavailableError as error:
            log.warning("approval: %s; asking again", error)
        time.sleep(poll_s)


def is_released(given: SweepOutcome | Mapping[str, Any]) -> bool:
    """True if the model of a night is, or was, released. Raises: SpecError, StorageError."""
    return find_night(given, stored_outcome(given))[2].has_released


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRun:
    """A judgement: the verdict that there is, or what is to be run for one."""

    judge: JudgeSpec
    store: Store
    line: Line
    night: Night
    outcome: SweepOutcome
    model: JudgedModel
    against: JudgedModel | None = None
    champion: tuple[str, float] | None = None
    """The champion whose model is `against`."""
    approval: ApprovalSpec | None = None
    ends_at: datetime | None = None
    sweep: SweepSpec | None = None
    """The sweep's spec, whose webhooks hear of a release."""
    verdict: Judgement | None = None
    """None: run `request`, and `settle` by what it gave."""

    @property
    def judge_id(self) -> str:
        """The judgement of these files with this spec: 12 hex digits."""
        asked = self.judge.model_dump(mode="json", exclude={"resources", "retries", "deadline"})
        models = [
            (each.run_id, each.digest) if each is not None else None for each in (self.model, self.against)
        ]
        return digest_of({"judge": asked, "models": models, "champion": self.champion})[:12]

    @property
    def configs(self) -> list[dict[str, Any]]:
        """The configs that the trials evaluate: the new model first."""
        models = [self.model, *([self.against] if self.against is not None else [])]
        asked = self.judge.model_dump(mode="json")
        return [
            {"model": each.uri, "digest": each.digest, "evaluate": asked["evaluate"], "data": asked["data"]}
            for each in models
        ]

    @property
    def request(self) -> RunRequest[SweepSpec]:
        """The sweep that evaluates both models."""
        configs = self.configs
        spec = SweepSpec(
            name=f"{self.outcome.name}-judge",
            trainable=EVALUATE,
            param_space=dict.fromkeys(configs[0]),
            search={"configs": {"configs": configs}},
            metric=FIGURE,
            mode=self.judge.mode,
            num_samples=len(configs),
            resources=self.judge.resources.model_dump(mode="json"),
            failure={"max_failures": self.judge.retries, "breaker_trials": 0},
            stop={"deadline": self.ends_at} if self.ends_at is not None else {},
            storage_path=self.store.url,
        )
        return RunRequest.of(spec, key_within(self.outcome.key, "judge", self.judge_id))

    def settle(self, again: SweepOutcome) -> Judgement:
        """The verdict, by what the evaluations gave; it is written down, and releases what passed.

        Raises: SweepFailedError: They were cancelled. StorageError.
        """
        if self.verdict is not None:
            return self.verdict
        if again.status == "cancelled":
            text = f"judgement not made: {again.sweep_id!r} was cancelled; run the judge again to continue"
            raise SweepFailedError(again, text)
        asked = self.request.run
        # One that was begun anew has a key that continues from this one.
        if again.name != asked.name or not again.key.startswith(asked.key):
            text = f"{again.sweep_id} evaluated other models than those of now; judge again"
            return self._record(
                refuse(self.judge, "outdated", text, self.model, self.against), again.sweep_id
            )
        return self._record(self._judged(again), again.sweep_id)

    def refused(self, reason: Reason, text: str) -> Judgement:
        """The verdict about a model that is not worth an evaluation, written down. Raises: StorageError."""
        return self._record(refuse(self.judge, reason, text, self.model, self.against))

    def _judged(self, again: SweepOutcome) -> Judgement:
        found: list[Figures] = []
        for index, (config, who) in enumerate(zip(self.configs, (_NEW, _RELEASED), strict=False)):
            trial = again.trials[index] if index < len(again.trials) else None
            read = self._figures(trial, config, who, again)
            if not isinstance(read, Figures):
                return refuse(self.judge, *read, self.model, self.against)
            found.append(read)
        changed = why_changed(self.model.uri, self.model.digest)
        if changed:
            return refuse(self.judge, "changed_model", changed, self.model, self.against)
        released = found[1] if self.against is not None else None
        return decide(self.judge, found[0], released, self.model, self.against)

    def _figures(
        self, trial: TrialOutcome | None, config: Mapping[str, Any], who: str, again: SweepOutcome
    ) -> Figures | tuple[Reason, str]:
        """The figures of a trial, or why there are none."""
        if trial is None or trial.state not in ("completed", "failed"):
            return "cut_judgement", f"the evaluation of {who} was cut short ({again.status})"
        if trial.config != config:
            differ = ", ".join(name for name in config if trial.config.get(name) != config[name])
            return "unlike_figures", f"{trial.trial_id} of {again.uri} evaluated another model ({differ})"
        if trial.state == "failed" or trial.checkpoint_uri is None:
            error = trial.error or next((each.error for each in reversed(trial.attempts)), None)
            if error is not None and error.type == ModelChangedError.__name__:
                reason: Reason = "changed_model" if who == _NEW else "changed_released"
                return reason, one_line(error.message, 300)
            problem = one_line(trial.problem or "it stored no figures", 200)
            return "no_figures", f"the evaluation of {who} failed: {problem}"
        try:
            with open_checkpoint(trial.checkpoint_uri) as folder:
                figures = decode_figures((folder / FILE).read_bytes())
        except (RaysweepError, ValueError, OSError) as error:
            return "no_figures", f"the figures of {who} cannot be read: {one_line(str(error), 200)}"
        if figures.model != config["digest"]:
            return "unlike_figures", f"the figures of {who} are of other files ({figures.model[:12]})"
        return figures

    def _record(self, judgement: Judgement, sweep_id: str = "") -> Judgement:
        """Write the verdict down, unless this judgement has one; that one counts."""
        at = time.time()
        judgement = judgement.model_copy(
            update={"judge_id": self.judge_id, "sweep_id": sweep_id, "at": at},
        )

        def judged(_: LineJournal, record: ChampionRecord) -> Event | None:
            night = record.night(self.night.sweep_id, self.night.gate)
            if night is None or _is_final(night, self.judge_id):
                return None
            event = self._event(judgement, record)
            if event.judgement.is_passed and event.waiting is None and not told:
                told.append(event.judgement)
                self._announce(event.judgement)
            return event

        told: list[Judgement] = []
        record = change_line(self.store, self.line, judged).record
        night = record.night(self.night.sweep_id, self.night.gate)
        return (night.judgement if night is not None else None) or judgement

    def _announce(self, judgement: Judgement) -> None:
        """Tell the sweep's webhooks that its model is released: before that is written, with one id."""
        if self.sweep is not None:
            event = Promoted(id=f"judge.{self.judge_id}", at=judgement.at, why=judgement.why)
            announce(self.sweep, self.outcome, event)

    def _event(self, judgement: Judgement, record: ChampionRecord) -> ModelJudged:
        champion = record.champion_beside(self.night.sweep_id)
        if judgement.is_passed and _identity(champion) != self.champion:
            newer = (champion.key or champion.sweep_id) if champion is not None else "none"
            why = f"undecided: the released model is now of {newer}: it was judged beside another"
            update = {"verdict": "undecided", "reasons": ("outdated",), "why": why}
            judgement = judgement.model_copy(update=update)
        waiting = None
        approval = self.night.to_approve or self.approval
        if judgement.is_passed and approval is not None:
            assert self.night.to_judge is not None
            waiting = Waiting(
                proposed=self.night.to_judge,
                against_sweep=champion.sweep_id if champion is not None else "",
                against_at=champion.at if champion is not None else None,
                until=judgement.at + approval.timeout,
                on_silence=approval.on_silence,
            )
        where = {"sweep_id": self.night.sweep_id, "gate": self.night.gate}
        return ModelJudged(by=this_user(), judgement=judgement, waiting=waiting, **where)


def prepare_judge(
    judge: JudgeSpec | Mapping[str, Any],
    given: SweepOutcome | Mapping[str, Any],
    trained: TrainOutcome | Mapping[str, Any],
    *,
    approval: ApprovalSpec | None = None,
    ends_at: datetime | None = None,
    sweep: SweepSpec | None = None,
) -> JudgeRun:
    """The judgement behind a training: for those who run it as a job and do not wait.

    Args and errors as `run_judge`.
    """
    check_scipy()
    spec = judge if isinstance(judge, JudgeSpec) else JudgeSpec.model_validate(dict(judge))
    outcome, training = stored_outcome(given), _stored_training(trained)
    store, line, night = find_night(given, outcome)
    candidate = night.to_judge
    assert candidate is not None
    _check_source(training, outcome, candidate)
    record = read_champion(store, line)
    champion = record.champion_beside(outcome.sweep_id)
    own = night_end(spec.deadline, outcome)
    ends = [each for each in (own, ends_at) if each is not None]
    run = JudgeRun(
        judge=spec,
        store=store,
        line=line,
        night=night,
        outcome=outcome,
        model=_model_of(training, outcome),
        against=_released(record, champion),
        champion=_identity(champion),
        approval=approval,
        ends_at=min(ends, default=None),
        sweep=sweep,
    )
    if _is_final(night, run.judge_id):
        return replace(run, verdict=night.judgement)
    refusal = _why_never(spec, training, run.model) or _why_late(run.ends_at)
    return replace(run, verdict=run.refused(*refusal)) if refusal is not None else run


def _is_final(night: Night, judge_id: str) -> bool:
    """True if a night's judgement is not made again: it released a model, or waits, or says the same."""
    judgement = night.judgement
    if judgement is None:
        return False
    is_same = judgement.judge_id == judge_id and not judgement.is_repeated
    return night.has_released or night.is_waiting or is_same


def _identity(champion: Champion | None) -> tuple[str, float] | None:
    return champion.identity if champion is not None else None


def _stored_training(trained: TrainOutcome | Mapping[str, Any]) -> TrainOutcome:
    """The training's outcome as it is stored, whatever the brief of it says."""
    fields = trained.model_dump(include={"uri", "run_id"}) if isinstance(trained, TrainOutcome) else trained
    uri = str(fields.get("uri") or "")
    storage, _, run_id = uri.rpartition("/")
    found = RunView("train", storage, run_id).outcome() if storage else None
    if not isinstance(found, TrainOutcome):
        where = f"there is no outcome of a training at {uri!r}" if uri else "does not say where it is stored"
        raise SpecError("training", where, "give what the training step handed on")
    return found


def find_night(given: SweepOutcome | Mapping[str, Any], outcome: SweepOutcome) -> tuple[Store, Line, Night]:
    """The night whose candidate is to be judged. Raises: SpecError, StorageError."""
    fields = given.model_dump(include={"gate"}) if isinstance(given, SweepOutcome) else given
    gate = fields.get("gate") or {}
    if not gate.get("gate_id"):
        raise SpecError("outcome", "has no verdict of a gate", "give what the gate handed on")
    store = open_store(outcome.uri.rpartition("/")[0])
    record = find_record(store, outcome.name, outcome.sweep_id, str(gate["gate_id"]))
    night = record.night(outcome.sweep_id, str(gate["gate_id"])) if record is not None else None
    if record is None or record.line is None or night is None:
        problem = f"the champions at {store.url} do not know the gate of {outcome.sweep_id}"
        raise SpecError("outcome", problem, "check the storage, or run the gate again")
    if night.to_judge is None:
        problem = f"the gate of {outcome.sweep_id} has no candidate that waits for a judgement"
        raise SpecError("outcome", problem, "let the gate know of its judge, and run the night again")
    return store, record.line, night


def _check_source(training: TrainOutcome, outcome: SweepOutcome, candidate: Champion) -> None:
    """See that the training is of the candidate. Raises: SpecError."""
    source = training.source
    made = f"{source.sweep}/{source.trial_id}" if source is not None else "no trial of a sweep"
    wanted = f"{outcome.uri}/{candidate.trial_id}"
    if made != wanted:
        problem = f"{training.run_id} trained {made}, and the gate promoted {wanted}"
        raise SpecError("training", problem, "give the training of what the gate handed on")


def _model_of(training: TrainOutcome, outcome: SweepOutcome) -> JudgedModel:
    fields = {"run_id": training.run_id, "sweep_id": outcome.sweep_id, "key": outcome.key}
    how = {"carried": training.carried, "predicted": training.predicted}
    uri = training.model_uri or ""
    try:
        digest = digest_of_model(uri) if uri else ""
    except RaysweepError:
        digest = ""
    return JudgedModel(uri=uri, digest=digest, **fields, **how)


def _released(record: ChampionRecord, champion: Champion | None) -> JudgedModel | None:
    """The model that is released, as it was judged then; None where none is known."""
    if champion is None:
        return None
    model = record.model_of(champion)
    if model is None:
        return None
    digest = model.digest or digest_of_model(model.source)  # released before there was a judge
    fields = {"run_id": model.run_id, "sweep_id": champion.sweep_id, "key": champion.key}
    return JudgedModel(uri=model.source, digest=digest, **fields)


def _why_late(ends_at: datetime | None) -> tuple[Reason, str] | None:
    if ends_at is None or time.time() < ends_at.timestamp():
        return None
    return "cut_judgement", f"the night ended at {ends_at.isoformat(timespec='minutes')[11:]}"


def _why_never(spec: JudgeSpec, training: TrainOutcome, model: JudgedModel) -> tuple[Reason, str] | None:
    """The reason why the model of a training is released in no case; None where it is judged."""
    if training.ended_by:
        return "cut_training", f"training {training.run_id} was cut: {training.ended_by}"
    if training.status != "completed" or not model.uri:
        return "no_model", f"training {training.run_id} has no model ({training.status})"
    if not model.digest:
        return "no_model", f"the files of the model at {model.uri} cannot be read"
    changed = [each.name for each in training.data if each.has_changed]
    if changed and not spec.allow_changed_data:
        return "changed_data", f"data {', '.join(changed)} changed while {training.run_id} trained on them"
    return None
