"""The gate: the best configs of a sweep run again with new seeds, beside the champion of earlier nights.

They run as a sweep of its own, whose id follows from that of the night: a gate that was cut goes on where it
was. What is run is written down first (`gate-plan.json`), what came out last (`gate.json`), each once; in
between the champion is replaced by compare-and-set. Whoever runs the gate again gets the same verdict.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from raysweep.errors import StorageError, SweepFailedError
from raysweep.outcome import Confirmed, GateOutcome, SweepOutcome, SweepProgress
from raysweep.pipeline.decision import decide, measured
from raysweep.run import run_sweep
from raysweep.runs.champions import Champion, ChampionRecord, Night, add_night, read_champion
from raysweep.schedulers import TRAINING_ITERATION, make_scheduler
from raysweep.spec import RunRequest, SweepSpec
from raysweep.spec.pipeline import GateSpec
from raysweep.step.brief import stored_outcome
from raysweep.storage.opening import open_store
from raysweep.storage.segment import RESTORE_FIX
from raysweep.storage.store import Store

PLAN: Final = "gate-plan.json"
RESULT: Final = "gate.json"


def run_gate(
    spec: SweepSpec,
    outcome: SweepOutcome,
    gate: GateSpec,
    *,
    address: Any = None,
    on_progress: Callable[[SweepProgress], None] | None = None,
) -> GateOutcome:
    """Run the best configs of a sweep again, and promote the best of them if it beats the champion.

    Args:
        spec: The sweep's spec.
        outcome: What it gave.
        gate: What its best has to show.
        address: As in `run_sweep`.
        on_progress: As in `run_sweep`, for the sweep that runs them again.

    Raises:
        SweepFailedError: The sweep has no best trial; or the one that runs them again failed.
        RaysweepError: As `run_sweep`.
    """
    prepared = prepare_gate(spec, outcome, gate)
    if prepared.verdict is not None:
        return prepared.verdict
    run = prepared.request
    return prepared.settle(run_sweep(run.spec, key=run.run.key, address=address, on_progress=on_progress))


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRun:
    """A gate: the verdict that there is, or what is to be run for one."""

    spec: SweepSpec
    outcome: SweepOutcome
    """The sweep's, with all its trials."""
    gate: GateSpec
    candidates: tuple[Confirmed, ...] = ()
    champion: Confirmed | None = None
    verdict: GateOutcome | None = None
    """None: run `request`, and `settle` by what it gave."""

    @property
    def request(self) -> RunRequest[SweepSpec]:
        """The sweep of those that run again, under the key of the first."""
        again = _spec(self.spec, self.outcome, self.gate, self.candidates, self.champion)
        return RunRequest.of(again, self.outcome.key)

    def settle(self, again: SweepOutcome) -> GateOutcome:
        """The verdict, by what they gave. Raises: SweepFailedError where that is nothing to go by."""
        if self.verdict is not None:
            return self.verdict
        again.raise_for_status()
        store = open_store(self.spec.storage_path)
        return settle(store, self.spec, self.outcome, self.gate, again, self.candidates, self.champion)


def prepare_gate(spec: Any, given: SweepOutcome | Mapping[str, Any], gate: Any) -> GateRun:
    """The gate behind a sweep: for those who run it as a job and do not wait.

    Args:
        spec: The sweep's, in any form.
        given: Its outcome, or the brief of it.
        gate: What the best has to show: a `GateSpec`, or its fields.

    Raises:
        SweepFailedError: The sweep has no best trial.
        SpecError, SweepNotFoundError, StorageError: As `stored_outcome`.
    """
    outcome, asked = stored_outcome(given), SweepSpec.from_any(spec)
    wanted = gate if isinstance(gate, GateSpec) else GateSpec.model_validate(dict(gate or {}))
    if outcome.uri:
        # Verdict, plan and champion lie where the sweep lies.
        asked = asked.replace(storage_path=outcome.uri.rpartition("/")[0])
    store = open_store(asked.storage_path)
    done = store.get(f"{outcome.sweep_id}/{RESULT}")
    if done is not None:
        return GateRun(spec=asked, outcome=outcome, gate=wanted, verdict=GateOutcome.from_json(done))
    candidates, champion = _plan(store, asked, outcome, wanted)
    return GateRun(spec=asked, outcome=outcome, gate=wanted, candidates=candidates, champion=champion)


def settle(
    store: Store,
    spec: SweepSpec,
    outcome: SweepOutcome,
    gate: GateSpec,
    again: SweepOutcome,
    candidates: tuple[Confirmed, ...],
    champion: Confirmed | None,
) -> GateOutcome:
    """Decide by what `again` gave, put the night into the champion's history, write the verdict down."""
    ran = (*candidates, *([champion] if champion is not None else []))
    measured_all = [measured(_with_scores(each, again, index, len(ran))) for index, each in enumerate(ran)]
    confirmed = measured_all[: len(candidates)]
    beside = measured_all[-1] if champion is not None else None
    if beside is not None and champion is not None and beside.n == 0:
        # It does not run any more, in this code or on these data: what it once gave has to do.
        beside = champion
    decided: list[GateOutcome] = []

    def choose(record: ChampionRecord) -> tuple[Night, Champion | None]:
        verdict = decide(gate, spec.mode, confirmed, _present(record, spec, beside))
        verdict = verdict.model_copy(update={"sweep_id": again.sweep_id, "at": time.time()})
        decided.append(verdict)
        best = verdict.best
        night = Night(
            sweep_id=outcome.sweep_id,
            key=outcome.key,
            at=verdict.at,
            promoted=verdict.promoted,
            mean=best.mean if best else None,
            why=verdict.why,
        )
        return night, (
            _champion(spec, gate, outcome, best, verdict.at) if verdict.promoted and best else None
        )

    record = add_night(store, gate.champion or spec.name, outcome.sweep_id, choose)
    night = record.night(outcome.sweep_id)
    verdict = decided[-1] if decided else decide(gate, spec.mode, confirmed, beside)
    if night is not None:
        # Where an earlier run of this gate came as far as the history, that is what was decided.
        update = {"promoted": night.promoted, "why": night.why, "at": night.at, "sweep_id": again.sweep_id}
        verdict = verdict.model_copy(update=update)
    key = f"{outcome.sweep_id}/{RESULT}"
    store.put_if_absent(key, verdict.to_json().encode(), durable=True)
    return GateOutcome.from_json(store.get(key) or verdict.to_json())


def _plan(
    store: Store, spec: SweepSpec, outcome: SweepOutcome, gate: GateSpec
) -> tuple[tuple[Confirmed, ...], Confirmed | None]:
    """What is run again: written down once, as the champion may change while it runs."""
    key = f"{outcome.sweep_id}/{PLAN}"
    found = store.get(key)
    if found is None:
        if outcome.best is None:
            raise SweepFailedError(outcome)
        record = read_champion(store, gate.champion or spec.name)
        champion = _as_confirmed(record.champion) if _is_same(record.champion, spec) else None
        known = champion.config if champion else None
        top = [trial for trial in outcome.top(gate.confirm_top_k + 1) if trial.config != known]
        candidates = [
            Confirmed(
                config=trial.config,
                trial_id=trial.trial_id,
                sweep_id=outcome.sweep_id,
                checkpoint_uri=trial.checkpoint_uri,
            )
            for trial in top[: gate.confirm_top_k]
        ]
        plan = {
            "candidates": [each.model_dump(mode="json") for each in candidates],
            "champion": champion.model_dump(mode="json") if champion else None,
        }
        store.put_if_absent(key, orjson.dumps(plan, option=orjson.OPT_INDENT_2), durable=True)
        found = store.get(key)
    try:
        fields = orjson.loads(found or b"")
        plan_candidates = tuple(Confirmed.model_validate(each) for each in fields["candidates"])
        beside = Confirmed.model_validate(fields["champion"]) if fields["champion"] else None
    except (ValueError, KeyError) as error:
        raise StorageError(f"{store.url}/{key}", f"is damaged ({error})", RESTORE_FIX) from error
    return plan_candidates, beside


def _spec(
    spec: SweepSpec,
    outcome: SweepOutcome,
    gate: GateSpec,
    candidates: tuple[Confirmed, ...],
    champion: Confirmed | None,
) -> SweepSpec:
    """The sweep that runs them again: every trial to its full end, nothing stopped early."""
    configs = [each.config for each in (*candidates, *([champion] if champion else []))]
    limits: dict[str, Any] = dict(spec.stop.trial)
    # The scheduler's own end of a trial; some trainables know no other.
    limits = _full_length(spec, outcome, candidates) | limits
    return spec.replace(
        name=f"{spec.name}-gate",
        search={"configs": {"configs": configs, "seeds": gate.seeds, "seed_param": gate.seed_param}},
        scheduler="fifo",
        num_samples=len(configs) * gate.seeds,
        # New seeds: others than the sweep's own.
        seed=None,
        warm_start=None,
        stop={"trial": limits, "trial_time_s": spec.stop.trial_time_s, "grace_s": spec.stop.grace_s},
    )


def _full_length(
    spec: SweepSpec, outcome: SweepOutcome, candidates: tuple[Confirmed, ...]
) -> dict[str, float]:
    """How far the sweep's scheduler let a trial go, as a limit for each trial; empty: as far as it went."""
    if not spec.scheduler.is_plugin:
        scheduler = make_scheduler(spec)
        return {} if scheduler.max_t is None else {scheduler.time_attr: scheduler.max_t}
    # Whoever prepares a gate need not have the class: what its candidates reached tells the same.
    names = {candidate.trial_id for candidate in candidates}
    reached = [trial.metrics.get(TRAINING_ITERATION) for trial in outcome.trials if trial.trial_id in names]
    lengths = [float(length) for length in reached if isinstance(length, int | float)]
    return {TRAINING_ITERATION: max(lengths)} if lengths else {}


def _with_scores(confirmed: Confirmed, again: SweepOutcome, index: int, count: int) -> Confirmed:
    trials = again.trials[index::count]
    scores = tuple(
        trial.score
        if trial.state == "completed" and trial.score is not None and math.isfinite(trial.score)
        else None
        for trial in trials
    )
    update: dict[str, Any] = {"scores": scores}
    if confirmed.checkpoint_uri is None:
        update["checkpoint_uri"] = next((t.checkpoint_uri for t in trials if t.checkpoint_uri), None)
    return confirmed.model_copy(update=update)


def _present(record: ChampionRecord, spec: SweepSpec, beside: Confirmed | None) -> Confirmed | None:
    """The champion to beat: the one that ran beside, unless another night has brought a new one since."""
    now = record.champion
    if now is None or not _is_same(now, spec):
        return None
    if beside is not None and beside.config == now.config and beside.sweep_id == now.sweep_id:
        return beside
    return _as_confirmed(now)


def _is_same(champion: Champion | None, spec: SweepSpec) -> bool:
    return champion is not None and (champion.metric, champion.mode) == (spec.metric, spec.mode)


def _as_confirmed(champion: Champion | None) -> Confirmed | None:
    if champion is None:
        return None
    return Confirmed(
        config=champion.config,
        sweep_id=champion.sweep_id,
        mean=champion.mean,
        spread=champion.spread,
        n=champion.n,
        checkpoint_uri=champion.checkpoint_uri,
    )


def _champion(spec: SweepSpec, gate: GateSpec, outcome: SweepOutcome, best: Confirmed, at: float) -> Champion:
    trial = next((trial for trial in outcome.trials if trial.trial_id == best.trial_id), None)
    return Champion(
        name=gate.champion or spec.name,
        metric=spec.metric,
        mode=spec.mode,
        config=best.config,
        mean=best.mean or 0.0,
        spread=best.spread or 0.0,
        n=best.n,
        metrics=trial.model_dump(mode="json")["metrics"] if trial else {},
        sweep_id=outcome.sweep_id,
        key=outcome.key,
        checkpoint_uri=best.checkpoint_uri,
        at=at,
    )
