"""sweep.json, progress.json and outcome.json: readable, and in agreement with the journal."""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from raysweep.core import SweepState, make_outcome
from raysweep.errors import SpecError, SweepDamagedError
from raysweep.outcome import SweepOutcome, SweepProgress
from raysweep.runs.catalog import catalog_key, read_catalog
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.runs.ownership.replay import replay
from raysweep.specs import RunId, SweepSpec, TrainSpec
from raysweep.storage.journal.segment import RESTORE_FIX
from raysweep.verify.report import Finding
from raysweep.version import __version__

REPAIR_FIX = "`raysweep verify --repair` writes it anew from the journal"
# What an outcome must have in common with the state; the rest is words and versions.
_SAME = (
    "status",
    "counts",
    "seed",
    "started_at",
    "ended_at",
    "metric",
    "mode",
    "others",
    "constraints",
)
_SAME_TRIAL = (
    *("trial_id", "number", "state", "config", "metrics", "best_metrics", "score", "violations"),
    *("reports", "overrun_reports", "checkpoint_uri", "started_at", "ended_at"),
)


def check_progress(folder: SweepFolder) -> tuple[SweepProgress | None, list[Finding]]:
    if not folder.store.exists(f"{folder.sweep_id}/progress.json"):
        return None, []
    progress = folder.read_progress()
    if progress is not None:
        return progress, []
    problem, fix = "is damaged", "the next controller writes it again"
    return None, [Finding(severity="damage", object="progress.json", problem=problem, fix=fix)]


def check_spec(folder: SweepFolder, findings: list[Finding]) -> tuple[SweepRecord | None, SweepSpec | None]:
    def damage(problem: str, fix: str = RESTORE_FIX) -> None:
        lost = "the spec: what the journal is replayed under"
        findings.append(Finding(severity="damage", object="sweep.json", problem=problem, lost=lost, fix=fix))

    try:
        record = folder.read_spec()
    except SweepDamagedError as error:
        damage(error.problem, error.fix)
        return None, None
    if record is None:
        damage("is missing")
        return None, None
    try:
        spec = SweepSpec.from_any(dict(record.spec))
        run = spec if record.train is None else TrainSpec.from_any(dict(record.train))
        wanted = RunId.of(run, record.key).id
    except SpecError as error:
        damage(f"holds no spec that this version can read ({error})")
        return None, None
    if wanted != folder.sweep_id:
        problem = f"belongs to sweep {wanted}, not to {folder.sweep_id}"
        findings.append(
            Finding(
                severity="damage",
                object="sweep.json",
                problem=problem,
                fix=f"rename the folder to {wanted}: a resume would not find it",
            )
        )
    return record, spec


def check_outcome(
    folder: SweepFolder, record: SweepRecord | None, state: SweepState | None
) -> Iterator[Finding]:
    try:
        outcome = folder.read_outcome()
    except SweepDamagedError as error:
        can_rewrite = state is not None and state.phase == "ended"
        yield Finding(
            severity="damage",
            object=error.path.removeprefix(f"{folder.uri}/"),
            problem=error.problem,
            lost="nothing" if can_rewrite else "the outcome",
            fix=REPAIR_FIX if can_rewrite else RESTORE_FIX,
            mending="rewrite" if can_rewrite else None,
        )
        return
    if outcome is None:
        if state is not None and state.phase == "ended":
            problem = "is not written yet, though the sweep has ended"
            yield Finding(
                severity="note", object="outcome.json", problem=problem, fix="`raysweep resume` writes it"
            )
        return
    if state is None or record is None:
        return
    if state.phase != "ended":
        yield Finding(
            severity="damage",
            object="journal",
            problem=f"has no end, but there is an outcome ({outcome.status})",
            lost="the last events; the outcome has the results",
            fix="the outcome stands: `raysweep best`, `raysweep trials`",
        )
        return
    names = list(_differences(outcome, _make_outcome(folder, record, state)))
    if names:
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        problem = f"is not what the journal gives: {shown}"
        yield Finding(
            severity="damage", object="outcome.json", problem=problem, fix=REPAIR_FIX, mending="rewrite"
        )


def check_listed(folder: SweepFolder) -> Iterator[Finding]:
    """Check the catalog's row of a sweep that has ended. Without it, lists read the head of its outcome."""
    try:
        ended = folder.read_standing()
    except SweepDamagedError:
        return
    listed = read_catalog(folder.store, [folder.sweep_id]).run(folder.sweep_id)
    if ended is not None and listed is not None and listed != ended.row():
        key = catalog_key(folder.sweep_id)
        yield Finding(
            severity="damage",
            object=key,
            problem="is not what the outcome gives",
            lost="nothing: the outcome has it",
            fix=REPAIR_FIX,
            mending="drop",
            keys=(key,),
        )


def replay_outcome(folder: SweepFolder) -> SweepOutcome | None:
    """The outcome as the journal gives it; None: the sweep has not ended.

    Raises: StorageError, SweepDamagedError, JournalDamagedError: it cannot be read.
    """
    found = replay_state(folder)
    return _make_outcome(folder, *found) if found and found[1].phase == "ended" else None


def replay_state(folder: SweepFolder) -> tuple[SweepRecord, SweepState] | None:
    """The state as the journal gives it, under what record; None without a sweep.json. Raises as above."""
    record = folder.read_spec()
    if record is None:
        return None
    return record, replay(folder.journal(), record)


def _make_outcome(folder: SweepFolder, record: SweepRecord, state: SweepState) -> SweepOutcome:
    return make_outcome(state, sweep_id=folder.sweep_id, key=record.key, uri=folder.uri, version=__version__)


def _differences(stored: SweepOutcome, replayed: SweepOutcome) -> Iterator[str]:
    # As JSON: NaN equals itself there. The trials one by one: there may be many.
    one, two = (
        orjson.loads(outcome.model_copy(update={"trials": ()}).to_json()) for outcome in (stored, replayed)
    )
    yield from (name for name in _SAME if one.get(name) != two.get(name))
    if (one["best"] or {}).get("number") != (two["best"] or {}).get("number"):
        yield "best"
    if len(stored.trials) != len(replayed.trials):
        yield "trials"
        return
    for trials in zip(stored.trials, replayed.trials, strict=True):
        mine, theirs = (trial.model_dump(mode="json", include=set(_SAME_TRIAL)) for trial in trials)
        if mine != theirs:
            yield from (f"{mine['trial_id']}.{name}" for name in _SAME_TRIAL if mine[name] != theirs[name])
