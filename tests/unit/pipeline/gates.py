"""Gates without Ray: a sweep that has ended, and how the sweep that a gate runs might end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from raysweep.outcome import ErrorInfo, GateOutcome, SweepOutcome, TrialOutcome, Usage
from raysweep.pipeline.gate import GateRun, prepare_gate
from raysweep.runs.across_runs.champions import ChampionRecord, Line, read_champion
from raysweep.runs.folder import SweepFolder
from raysweep.specs import SweepSpec
from raysweep.specs.approval import ApprovalSpec
from raysweep.specs.pipeline import GateSpec
from raysweep.storage.objects.opening import open_store


def make_spec(storage: Path, **fields: Any) -> SweepSpec:
    plain = {
        "name": "flights",
        "trainable": "m:f",
        "param_space": {"x": {"uniform": [0, 1]}},
        "metric": "auc",
        "mode": "max",
        "scheduler": {"asha": {"max_t": 9}},
        "stop": {"deadline": "06:00 Europe/Berlin"},
        "storage_path": str(storage),
    }
    return SweepSpec.model_validate(plain | fields)


def swept(name: str, *scores: float) -> SweepOutcome:
    trials = tuple(
        TrialOutcome(
            trial_id=f"{n:05d}",
            number=n,
            state="completed",
            config={"x": score},
            score=score,
            metrics={"auc": score},
        )
        for n, score in enumerate(scores)
    )
    best = max(trials, key=lambda trial: trial.score or 0.0)
    return SweepOutcome(
        sweep_id=name,
        name="flights",
        key=name,
        status="completed",
        why="3 of 3 trials",
        metric="auc",
        mode="max",
        best=best,
        trials=trials,
        started_at=1.0,
        ended_at=2.0,
    )


def judged(outcome: SweepOutcome, bound: str, *far: float | None) -> SweepOutcome:
    """The same outcome of a sweep with this constraint, each trial so far from satisfying it."""
    trials = tuple(
        trial.model_copy(update={"violations": {bound: each}})
        for trial, each in zip(outcome.trials, far, strict=True)
    )
    outcome = outcome.model_copy(update={"trials": trials, "constraints": (bound,)})
    best = next((trial for trial in outcome.top(1) if trial.is_feasible), None)
    return outcome.model_copy(update={"best": best})


def gave(prepared: GateRun, *scores: float | None) -> SweepOutcome:
    """How the gate's sweep ends, with scores seed by seed; None: that trial failed."""
    run = prepared.request.run
    again = swept(run.id, *(score if score is not None else 0.0 for score in scores))
    error = ErrorInfo(kind="user_error", type="KeyError", message="'depth'")
    trials = tuple(
        trial
        if score is not None
        else trial.model_copy(update={"state": "failed", "score": None, "error": error})
        for trial, score in zip(again.trials, scores, strict=True)
    )
    return again.model_copy(update={"name": run.name, "key": run.key, "trials": trials})


def champions(storage: Path, name: str = "flights", metric: str = "auc", mode: str = "max") -> ChampionRecord:
    """The line of champions that a gate has written to."""
    return read_champion(open_store(storage), Line(name=name, metric=metric, mode=mode))


def configs(prepared: GateRun) -> list[dict[str, Any]]:
    """What a gate runs again, the champion last."""
    listed: Any = prepared.request.spec.search.options
    return list(listed.configs)


def night(
    storage: Path,
    name: str,
    *scores: float,
    shift: float = 0.0,
    approval: ApprovalSpec | None = None,
    data: str | None = None,
    is_judged: bool = False,
) -> GateOutcome:
    """A night whose gate gives each config its own x, a shift, and a little by the seed."""
    gate = GateSpec(confirm_top_k=1, min_improvement=0.02, data=data)
    outcome: SweepOutcome = swept(name, *scores).model_copy(
        update={"code_digest": f"code-{name}", "spec_digest": f"spec-{name}", "usage": Usage(cpu_hours=2.0)}
    )
    trials = (
        each.model_copy(
            update={"checkpoint_uri": f"{open_store(storage).url}/{name}/checkpoints/{each.trial_id}/3"}
        )
        for each in outcome.trials
    )
    outcome = outcome.model_copy(update={"trials": tuple(trials)})
    prepared = prepare_gate(make_spec(storage), outcome, gate, approval, is_judged=is_judged)
    if prepared.verdict is not None:
        return prepared.verdict
    found = [c["x"] + shift + seed / 1000 for seed in range(gate.seeds) for c in configs(prepared)]
    return prepared.settle(gave(prepared, *found).model_copy(update={"raysweep_version": "9.8"}))


GATE = {"confirm_top_k": 2, "seeds": 2, "test": "mean"}


def stored(spec: SweepSpec, outcome: SweepOutcome) -> SweepOutcome:
    """As a sweep leaves it: an outcome that is there already is put aside."""
    folder = SweepFolder(open_store(spec.storage_path), outcome.sweep_id)
    if folder.read_outcome() is not None:
        folder.archive_outcome()
    outcome = outcome.model_copy(update={"uri": f"{spec.storage_path}/{outcome.sweep_id}"})
    folder.write_outcome_if_absent(outcome)
    return outcome


def settled(spec: SweepSpec, given: Any, **gate: Any) -> GateOutcome:
    """The verdict of a gate whose configs each score their own x."""
    prepared = prepare_gate(spec, given, GATE | gate)
    if prepared.verdict is not None:
        return prepared.verdict
    seeds = prepared.gate.seeds
    return prepared.settle(gave(prepared, *(c["x"] for _ in range(seeds) for c in configs(prepared))))
