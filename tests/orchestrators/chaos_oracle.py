"""What must be true after a night, whatever happened to it: pure functions over a record of what was seen.

`lies(seen)` names each contradiction between the four that must tell one truth: the states that the
orchestrator shows, the outcomes in the storage, the jobs of the cluster, and the champion. It knows what
people did, as that decides how a night ends. It knows no fault: none may.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, Literal

from tests.orchestrators.chaos_plan import ENDINGS, REFUSALS, Answer
from tests.orchestrators.nights import ENDED, State, Step

STEPS: Final[tuple[Step, ...]] = ("sweep", "gate", "train")
STOP_S: Final = 45.0
"""Within so long after a person's word nothing of the night may run any more, outages not counted. The
promise is 30 s, on a machine that does nothing else."""
ORPHAN_S: Final = 300.0
"""The same where nothing of the orchestrator was told of the end: `expire_run`."""
CLOCK_S: Final = 0.5
"""Times of different processes are this far apart at most."""
PAST_HOLD_S: Final = 10.0
"""So soon after a person's word a training may complete that was past the place where all wait then."""
_FAILED: Final = ("failed", "cancelled")
_ENDED_BY: Final = {"expire_run": (*_FAILED, "skipped")}
USABLE: Final = ("completed", "target", "plateau", "deadline", "budget")
RUNNING: Final = ("PENDING", "RUNNING")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSeen:
    """A job of the cluster, as it was last seen. Times are UTC seconds."""

    number: int
    status: str
    """As Ray says it; GONE: it ended with its head."""
    started_at: float
    ended_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSeen:
    """A sweep, a gate's sweep or a training, as storage and cluster tell it at the end of the night."""

    step: Step
    run_id: str
    status: str | None
    """Of its outcome; None: it has none."""
    ended_at: float | None = None
    best_x: float | None = None
    """Of its best trial; of a training: what it trained."""
    xs: tuple[float, ...] = ()
    """Of all its completed trials."""
    returned: tuple[tuple[int, float], ...] = ()
    """The trials that the journal says returned, and when; in its order."""
    jobs: tuple[JobSeen, ...] = ()
    damage: tuple[str, ...] = ()
    """What `raysweep verify` says is damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSeen:
    """A step as the orchestrator shows it."""

    state: State
    handed_on: Mapping[str, Any] | None = None
    """What it gave to the next one; None where that cannot be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What a person did, to which step, and when: the moment at which the orchestrator had taken it."""

    what: str
    step: Step
    at: float
    stopped_at: float | None = None
    """When nothing of the step ran any more, before anybody cleared it; None: nobody waited for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What a trial, or a training, noted."""

    word: Literal["start", "step", "end"]
    run_id: str
    number: int
    pid: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChampionSeen:
    """`champions/<name>/<metric>.<mode>/`."""

    sweep_id: str | None = None
    x: float | None = None
    nights: tuple[tuple[str, bool], ...] = ()
    """The sweeps of its history, and whether each was promoted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalSeen:
    """What task, evidence and registry know of a person's decision."""

    answer: Answer
    """What the person did."""
    task: StepSeen
    """The task that asks; it hands on `promoted`."""
    decisions: tuple[tuple[str, bool, str], ...] = ()
    """Of the whole evidence: the sweep, whether it was approved, and by whom."""
    flaws: tuple[str, ...] = ()
    """What is wrong with the evidence."""
    registered: tuple[str, ...] = ()
    """The sweeps of all releases that the registry has, the newest last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NightSeen:
    """All that was seen of a night."""

    steps: Mapping[Step, StepSeen]
    runs: tuple[RunSeen, ...]
    acts: tuple[Act, ...] = ()
    trials: int
    """How many the sweep was to run."""
    clear_resumes: bool = True
    """Whether a cancelled night continues when it is cleared or retried: by the orchestrator's promise."""
    before: ChampionSeen = field(default_factory=ChampionSeen)
    after: ChampionSeen = field(default_factory=ChampionSeen)
    lines: tuple[Line, ...] = ()
    trained: tuple[float, ...] = ()
    """The x of each training that came to its end."""
    left: tuple[str, ...] = ()
    """What of any sweep is on the cluster after the night and its lease."""
    quiet_at: float | None = None
    """When nothing of the night ran any more; None: it still does."""
    outages_s: float = 0.0
    """How long, in all, something was out of reach: people's acts may take that much longer."""
    approval: ApprovalSeen | None = None
    """None where no person is asked."""

    def runs_of(self, step: Step) -> list[RunSeen]:
        """A step's runs: one, as a rule; none where nothing was begun."""
        return [run for run in self.runs if run.step == step]


def lies(seen: NightSeen) -> list[str]:
    """Each contradiction, as a sentence that begins with the rule; empty: the night has one truth."""
    return [f"{rule.__name__.strip('_')}: {lie}" for rule in RULES for lie in rule(seen)]


def wanted(seen: NightSeen) -> Literal["success", "ended", "marked"]:
    """How the night has to end, by what people did to it, in order; faults change nothing about it."""
    now: Literal["success", "ended", "marked"] = "success"
    for act in seen.acts:
        if act.what == "mark_success":
            now = "marked"
        elif act.what in ENDINGS:
            now = "ended"
        elif act.what == "clear" and (now == "success" or seen.clear_resumes):
            now = "success"
    return now


# --- the rules


def _every_step_ends(seen: NightSeen) -> Iterator[str]:
    is_cut = any(step.state in ("failed", "cancelled") for step in seen.steps.values())
    for name, step in seen.steps.items():
        # What comes after a step that failed never begins.
        if step.state not in ENDED and not (is_cut and step.state == "waiting"):
            yield f"{name} is still {step.state}"


def _it_ends_as_people_want(seen: NightSeen) -> Iterator[str]:
    states = {name: step.state for name, step in seen.steps.items()}
    want = wanted(seen)
    if want == "success":
        yield from (
            f"{name} is {state}, though nobody ended the night"
            for name, state in states.items()
            if state != "success" and not (name == "train" and state == "skipped")
        )
    elif want == "marked":
        marked = next(act.step for act in reversed(seen.acts) if act.what == "mark_success")
        if states[marked] != "success":
            yield f"{marked} is {states[marked]}, though it was marked success"
    elif _was_complete(seen):
        pass  # a retry has its outcome
    elif _was_about_to_complete(seen):
        pass  # nothing was left to end
    elif not any(state in _ENDED_BY.get(seen.acts[-1].what, _FAILED) for state in states.values()):
        yield f"a person ended the night ({seen.acts[-1].what}), and no step says so: {states}"


def _was_complete(seen: NightSeen) -> bool:
    """Whether the last act is a retry of a step that had completed by itself when a person ended it."""
    if len(seen.acts) < 2 or seen.acts[-1].what != "clear":
        return False
    ended = seen.acts[-2]
    runs = seen.runs_of(ended.step)
    return bool(runs) and all(
        run.status == "completed" and run.ended_at is not None and run.ended_at <= ended.at + CLOCK_S
        for run in runs
    )


def _was_about_to_complete(seen: NightSeen) -> bool:
    """Whether the last step, a training, completed before it could see that a person ended it."""
    act = seen.acts[-1]
    latest = act.at + PAST_HOLD_S + seen.outages_s
    runs = seen.runs_of("train")
    return (
        act.step == "train"
        and act.what != "clear"
        and any(
            run.status == "completed" and run.ended_at is not None and run.ended_at <= latest for run in runs
        )
    )


def _success_has_an_outcome(seen: NightSeen) -> Iterator[str]:
    marked = {act.step for act in seen.acts if act.what == "mark_success"}
    for name, step in seen.steps.items():
        if step.state != "success" or (name in marked and wanted(seen) == "marked"):
            continue
        runs = seen.runs_of(name)
        if not any(run.status in USABLE for run in runs):
            yield f"{name} is success, and its outcome is {[run.status for run in runs] or 'missing'}"


def _what_is_handed_on_is_what_is_stored(seen: NightSeen) -> Iterator[str]:
    """A task that was cleared or resumed and answers with what it had before hands on another best."""
    for name in ("sweep", "train"):
        step = seen.steps[name]  # type: ignore[index]
        if step.state != "success" or step.handed_on is None:
            continue
        said = (step.handed_on.get("status"), step.handed_on.get("x"))
        stored = [(run.status, run.best_x) for run in seen.runs_of(name)]  # type: ignore[arg-type]
        if said not in stored:
            yield f"{name} handed on {said}, stored is {stored}"


def _all_trials_ran(seen: NightSeen) -> Iterator[str]:
    """No fault costs a trial; and the best is the best of them."""
    for run in seen.runs_of("sweep"):
        if run.status != "completed":
            continue
        if len(run.xs) != seen.trials:
            yield f"{run.run_id} is completed with {len(run.xs)} of {seen.trials} trials"
        if run.xs and run.best_x != min(run.xs):
            yield f"the best of {run.run_id} has x={run.best_x}, its trials have {min(run.xs)}"


def _one_job_at_a_time(seen: NightSeen) -> Iterator[str]:
    for run in seen.runs:
        for one, next_ in pairwise(sorted(run.jobs, key=lambda job: job.number)):
            if one.ended_at is None or next_.started_at < one.ended_at - CLOCK_S:
                yield f"{run.run_id}: job {next_.number} began while job {one.number} ran"
        numbers = [job.number for job in run.jobs]
        if len(set(numbers)) != len(numbers):
            yield f"{run.run_id}: two jobs have one number: {sorted(numbers)}"


def _no_job_is_left(seen: NightSeen) -> Iterator[str]:
    for run in seen.runs:
        for job in run.jobs:
            if job.status in RUNNING:
                yield f"job {job.number} of {run.run_id} is {job.status} after the night"
    if seen.left:
        yield f"on the cluster: {', '.join(seen.left)}"
    if seen.quiet_at is None:
        yield "something of the night runs on"


def _who_is_told_to_end_ends(seen: NightSeen) -> Iterator[str]:
    for act in seen.acts:
        took = act.stopped_at - act.at if act.what in ENDINGS and act.stopped_at is not None else 0.0
        if took > (ORPHAN_S if act.what == "expire_run" else STOP_S) + seen.outages_s:
            yield f"it took {took:.0f} s from {act.what} until nothing of the {act.step} ran any more"


def _no_trial_runs_twice(seen: NightSeen) -> Iterator[str]:
    for run in seen.runs:
        for number, count in Counter(number for number, _ in run.returned).items():
            if count > 1:
                yield f"trial {number} of {run.run_id} ended {count} times in the journal"
        ended = dict(run.returned)
        lines = [line for line in seen.lines if line.run_id == run.run_id]
        for line in lines:
            if line.word == "start" and line.at > ended.get(line.number, line.at) + CLOCK_S:
                yield f"trial {line.number} of {run.run_id} was started after it had ended"
        for number in {line.number for line in lines}:
            pids = [line.pid for line in lines if line.number == number]
            turns = [pid for pid, before in zip(pids, [None, *pids], strict=False) if pid != before]
            if len(turns) > len(set(turns)):
                yield f"trial {number} of {run.run_id} ran in two processes at once"


def _the_champion_is_the_best_that_was_promoted(seen: NightSeen) -> Iterator[str]:
    own = {run.run_id: run for run in seen.runs_of("sweep")}
    added = [night for night in seen.after.nights if night[0] in own]
    for sweep_id, count in Counter(sweep_id for sweep_id, _ in added).items():
        if count > 1:
            yield f"{sweep_id} is {count} times in the champion's history"
    for sweep_id, _ in added:
        if own[sweep_id].status not in USABLE:
            yield f"{sweep_id} is in the champion's history, and its outcome is {own[sweep_id].status}"
    promoted = [sweep_id for sweep_id, is_promoted in added if is_promoted]
    has_changed = (seen.after.sweep_id, seen.after.x) != (seen.before.sweep_id, seen.before.x)
    if has_changed and seen.after.sweep_id not in promoted:
        yield f"the champion is of {seen.after.sweep_id}, which was not promoted this night"
    if promoted and seen.after.sweep_id in own:
        best = own[seen.after.sweep_id].best_x
        if seen.after.x != best:
            yield f"the champion has x={seen.after.x}, the outcome's best {best}"
    if promoted and not has_changed:
        yield f"{promoted} was promoted, and the champion is still of {seen.before.sweep_id}"
    is_better = seen.before.x is None or seen.after.x is None or seen.after.x < seen.before.x
    if has_changed and not is_better:
        yield f"the champion's loss went from {seen.before.x} to {seen.after.x}"


def _what_is_promoted_is_trained(seen: NightSeen) -> Iterator[str]:
    own = {run.run_id: run.best_x for run in seen.runs_of("sweep")}
    promoted = {sweep_id: is_promoted for sweep_id, is_promoted in seen.after.nights if sweep_id in own}
    train = seen.steps["train"].state
    if train == "success" and not any(promoted.values()):
        yield f"a training succeeded, and the gate said {promoted or 'nothing'}"
    if train == "skipped" and wanted(seen) == "success" and promoted and all(promoted.values()):
        yield "the training was skipped, and the gate had promoted the best"
    if seen.steps["gate"].state == "success" and wanted(seen) == "success" and not promoted:
        yield "the gate succeeded, and is not in the champion's history"
    for x in set(seen.trained):
        if x not in own.values():
            yield f"x={x} was trained, the best is {sorted(filter(None, own.values()))}"
    for run in seen.runs_of("train"):
        if run.status == "completed" and run.best_x not in own.values():
            yield f"{run.run_id} trained x={run.best_x}, the best is {sorted(filter(None, own.values()))}"


def _what_a_person_decides_holds(seen: NightSeen) -> Iterator[str]:
    """Task, champion, evidence, registry and training tell of one decision: the first one, or silence's."""
    if seen.approval is None:
        return
    approval, own = seen.approval, {run.run_id for run in seen.runs_of("sweep")}
    told = [(approved, by) for sweep_id, approved, by in approval.decisions if sweep_id in own]
    if len(told) != 1:
        yield f"the evidence has {len(told)} decisions: {told}"
        return
    ((approved, by),) = told
    if approved is (approval.answer in REFUSALS):
        yield f"the person's answer was {approval.answer}, and {by} decided {approved}"
    if (by == "silence") is not (approval.answer == "silence"):
        yield f"the person's answer was {approval.answer}, and {by} decided"
    handed = (approval.task.handed_on or {}).get("promoted")
    if (approval.task.state, handed) != ("success", approved):
        yield f"the task is {approval.task.state} and handed on {handed}, the decision is {approved}"
    if (seen.after.sweep_id in own) is not approved:
        yield f"the champion is of {seen.after.sweep_id}, the decision is {approved}"
    train = seen.steps["train"].state
    if train != ("success" if approved else "skipped"):
        yield f"train is {train}, the decision is {approved}"
    releases = [sweep_id for sweep_id in approval.registered if sweep_id in own]
    if len(releases) != int(approved) or (approved and approval.registered[-1] not in own):
        yield f"the registry has {list(approval.registered)}, the decision of {sorted(own)} is {approved}"
    yield from approval.flaws


def _nothing_is_damaged(seen: NightSeen) -> Iterator[str]:
    for run in seen.runs:
        yield from (f"{run.run_id}: {damage}" for damage in run.damage)


Rule = Callable[[NightSeen], Iterator[str]]
RULES: Final[Sequence[Rule]] = (
    _every_step_ends,
    _it_ends_as_people_want,
    _success_has_an_outcome,
    _what_is_handed_on_is_what_is_stored,
    _all_trials_ran,
    _one_job_at_a_time,
    _no_job_is_left,
    _who_is_told_to_end_ends,
    _no_trial_runs_twice,
    _the_champion_is_the_best_that_was_promoted,
    _what_is_promoted_is_trained,
    _what_a_person_decides_holds,
    _nothing_is_damaged,
)
