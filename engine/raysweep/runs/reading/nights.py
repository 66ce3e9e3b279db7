"""Nights: a sweep with all that followed it in one row, and why one took longer than those before.

The sweep of a gate, or of a judge, names its night by its key (`2026-11-25/gate-0123456789ab`), a training by
the sweep that its config comes from. What belongs to no sweep that is stored beside it is a row of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Final

from raysweep.errors import RaysweepError
from raysweep.outcome import GateOutcome, Record, Standing
from raysweep.outcome.judgement import Judgement
from raysweep.outcome.predicted import Predicted
from raysweep.outcome.showing.formatting import show_duration
from raysweep.runs.across_runs.champions import ChampionRecord, read_records
from raysweep.runs.across_runs.champions import Night as Decided
from raysweep.runs.across_runs.verdicts import read_verdict
from raysweep.runs.catalog import Catalog, read_catalog
from raysweep.runs.reading.listing import list_runs
from raysweep.specs.identity import RunId, slug
from raysweep.storage.objects.parallel import each_of, run_folders
from raysweep.storage.objects.store import Store

_STEP: Final = re.compile(r"(.*)/(gate|judge)-([0-9a-f]{12})(?:/.*)?", re.DOTALL)
_USUAL: Final = 10
"""The number of earlier nights that show what is usual."""
_LONGER: Final = 1.25
_MORE: Final = 1.15


class Night(Record):
    """One night of a name: its sweep, and what followed it."""

    run: Standing
    """The sweep; of a row of its own, a training or a gate's sweep."""
    gate_run: Standing | None = None
    """The sweep of its newest gate."""
    gate: GateOutcome | None = None
    """The verdict of that gate; None before that, and without a gate."""
    training: Standing | None = None
    """The training of what it handed on, the newest."""
    judge_run: Standing | None = None
    """The sweep of the newest judgement of its model."""
    judgement: Judgement | None = None
    """The newest judgement of its model; None before that, and without a judge."""
    recorded: Predicted | None = None
    """The law's prediction of its training, as the line of champions has it."""
    released: bool = False
    """True if its config, and with a judge its model, was released, and no rollback took it away since."""

    @property
    def parts(self) -> tuple[Standing, ...]:
        """Sweep, gate, training and judge, as far as there are."""
        parts = (self.run, self.gate_run, self.training, self.judge_run)
        return tuple(each for each in parts if each is not None)

    @property
    def promoted(self) -> bool | None:
        """True if the gate promoted its best; None where it has not decided."""
        return self.gate.promoted if self.gate is not None else None

    @property
    def predicted(self) -> Predicted | None:
        """The score that a law predicted of its training, beside the one that came."""
        return (self.training.predicted if self.training is not None else None) or self.recorded

    @property
    def took_s(self) -> float | None:
        """The time of its parts together, in seconds; None while one has not ended."""
        times = [each.took_s for each in self.parts]
        known = [each for each in times if each is not None]
        return sum(known) if len(known) == len(times) else None

    @property
    def cost(self) -> float | None:
        """The cost of its parts together; None where no prices were given."""
        return sum(each.usage.cost for each in self.parts if each.usage is not None) or None

    @property
    def failures(self) -> int:
        """The number of its trials that failed, those of the gate included."""
        return sum(each.counts.get("failed", 0) for each in self.parts if each.kind == "sweep")

    @property
    def status(self) -> str:
        """That of its first part that has not ended well, else of the sweep."""
        for part in self.parts[1:]:
            if not part.has_ended or part.status == "failed":
                what = "train" if part.kind == "train" else "judge" if part is self.judge_run else "gate"
                return f"{what} {part.status}"
        return self.run.status


def nights_at(store: Store, name: str | None = None) -> list[Night]:
    """The nights at a storage path, the newest first; with a name, of that name or slug only.

    Raises: StorageError.
    """
    ids = run_folders(store)
    catalog = read_catalog(store, ids)
    found = group_nights(store, list_runs(store, ids, catalog=catalog), name, catalog)
    return sorted(found, key=lambda night: -(night.run.started_at or 0.0))


def group_nights(store: Store, runs: Sequence[Standing], name: str | None, catalog: Catalog) -> list[Night]:
    """These runs as nights, in their order. Verdicts that the catalog does not have are read one by one."""
    ids = {run.run_id for run in runs if run.kind == "sweep"}
    gates: dict[str, tuple[Standing, str]] = {}
    judges: dict[str, tuple[Standing, str]] = {}
    trainings: dict[str, Standing] = {}
    own: list[Standing] = []
    for run in runs:
        sweep, step, mark = _step_of(run)
        if sweep in ids:
            found = gates if step == "gate" else judges
            found[sweep] = max(found.get(sweep, (run, mark)), (run, mark), key=_started)
        elif run.of in ids:
            trainings[run.of] = max(trainings.get(run.of, run), run, key=lambda each: each.started_at or 0.0)
        else:
            own.append(run)
    wanted = slug(name) if name is not None else None
    shown = [run for run in own if wanted is None or run.run_id.rpartition("-")[0] == wanted]

    def make(run: Standing) -> Night:
        return _night(store, run, gates.get(run.run_id), trainings.get(run.run_id), catalog)

    nights = each_of(store, make, shown)
    if not gates:
        return nights
    records, _ = read_records(store)  # `raysweep verify` says what is wrong with the others
    releases = {(each.sweep_id, each.gate): (record, each) for record in records for each in record.history}
    return [_with_release(night, releases, judges) for night in nights]


def _with_release(
    night: Night,
    releases: Mapping[tuple[str, str], tuple[ChampionRecord, Decided]],
    judges: Mapping[str, tuple[Standing, str]],
) -> Night:
    sweep_id = night.run.run_id
    found = releases.get((sweep_id, night.gate.gate_id)) if night.gate is not None else None
    if found is None:
        return night
    record, decided = found
    is_released = any(each == sweep_id for each, _ in record.known) and sweep_id not in record.undone
    judge_run = judges[sweep_id][0] if sweep_id in judges else None
    judged = {"judge_run": judge_run, "judgement": decided.judgement, "released": is_released}
    update: dict[str, Any] = {**judged, "recorded": decided.predicted}
    return night.model_copy(update=update)


def _started(found: tuple[Standing, str]) -> float:
    return found[0].started_at or 0.0


def _step_of(run: Standing) -> tuple[str, str, str]:
    """The id of the sweep that a gate's or a judge's sweep follows, which of the two, and its mark.

    Empty for any other run.
    """
    match = _STEP.fullmatch(run.key)
    if run.kind != "sweep" or match is None or not run.name.endswith(f"-{match[2]}"):
        return "", "", ""
    name = run.name.removesuffix(f"-{match[2]}")
    return (RunId.stored("sweep", name, match[1]).id, match[2], match[3]) if slug(name) else ("", "", "")


def _night(
    store: Store,
    run: Standing,
    gate: tuple[Standing, str] | None,
    training: Standing | None,
    catalog: Catalog,
) -> Night:
    verdict = catalog.verdict(run.run_id, gate[1]) if gate is not None else None
    if gate is not None and verdict is None:
        try:
            verdict = read_verdict(store, run.run_id, gate[1])
        except RaysweepError:
            verdict = None  # `raysweep verify` says what is wrong with it
    return Night(run=run, gate_run=gate[0] if gate else None, gate=verdict, training=training)


# --- why one took longer


def why_longer(night: Night, before: Sequence[Night]) -> str:
    """The reasons why a night took a quarter longer than usual: what there was more of; empty: it did not.

    Args:
        night: The night.
        before: The nights of its name before it, the newest first; the median of the newest ten is usual.
    """
    usual = [each for each in before if each.took_s is not None][:_USUAL]
    took = night.took_s
    if took is None or not usual:
        return ""
    normal = median(each.took_s or 0.0 for each in usual)
    if took < _LONGER * normal or took - normal < 1.0:
        return ""
    reasons = [text for text in _reasons(night, usual) if text]
    head = f"{show_duration(took)}, usually {show_duration(normal)}"
    return f"{head}: {'; '.join(reasons)}" if reasons else head


def _reasons(night: Night, usual: Sequence[Night]) -> Iterable[str]:
    runs = [each.run for each in usual]
    yield _compared(night.run, runs, lambda run: run.counts.ended, "{} trials", _whole)
    yield _compared(night.run, runs, _trial_s, "{} per trial", show_duration)
    yield _compared(night.run, runs, _repeated, "{} attempts repeated", _whole)
    yield _compared(night.run, runs, lambda run: run.generation, "{} controllers", _whole)
    yield _compared(night.run, runs, _idle_s, "{} without a controller", show_duration)
    at_once, normal = _at_once(night.run), _median(map(_at_once, runs))
    if at_once is not None and normal is not None and normal > _MORE * at_once:
        yield f"{at_once:.1f} trials at once (usually {normal:.1f})"
    for text, part in (("gate took {}", _gate_run), ("training took {}", _training)):
        ran = part(night)
        others = [other for each in usual for other in [part(each)] if other is not None]
        if ran is not None:
            yield _compared(ran, others, lambda run: run.took_s, text, show_duration)


def _compared(
    run: Standing,
    usual: Sequence[Standing],
    of: Callable[[Standing], float | None],
    text: str,
    shown: Callable[[float], str],
) -> str:
    """`40 trials (usually 20)` where that is more than usual; else empty."""
    value, normal = of(run), _median(map(of, usual))
    if value is None or value <= _MORE * (normal or 0.0) or value - (normal or 0.0) < 0.5:
        return ""
    return f"{text.format(shown(value))} (usually {'none' if not normal else shown(normal)})"


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _whole(value: float) -> str:
    return f"{value:.0f}"


def _gate_run(night: Night) -> Standing | None:
    return night.gate_run


def _training(night: Night) -> Standing | None:
    return night.training


def _trial_s(run: Standing) -> float | None:
    return run.trial_s / run.counts.ended if run.counts.ended and run.trial_s else None


def _repeated(run: Standing) -> float:
    return max(0, run.attempts - run.counts.total)


def _idle_s(run: Standing) -> float | None:
    if run.took_s is None or run.usage is None or not run.usage.active_s:
        return None
    return max(0.0, run.took_s - run.usage.active_s)


def _at_once(run: Standing) -> float | None:
    if run.usage is None or not run.usage.active_s or not run.trial_s:
        return None
    return run.trial_s / run.usage.active_s
