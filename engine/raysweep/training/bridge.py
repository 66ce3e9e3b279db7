"""The bridge of a training: ways to carry a config run at a scale between, and the best of them is trained.

Each way is carried to the scale of the bridge as it would be to that of the training: `carried` and `copied`,
and, where the law carries, `lower` and `upper`, which have the ends of its intervals. They run as a sweep of
their own, whose key follows from the training's. The carried config is trained unless another one beats it
with 90 % confidence (`numeric.comparison`), seed by seed. Its decision is part of the training's stored spec:
once that is written, the bridge does not run again.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from raysweep.documents.digest import digest_of
from raysweep.documents.mode import Mode
from raysweep.documents.wall_clock import resolve_deadline
from raysweep.errors import SpecError, one_line
from raysweep.numeric.comparison import MIN_SEEDS, Gain, Scores, paired_gains
from raysweep.outcome import SweepOutcome, TrainOutcome, TrialOutcome
from raysweep.runs.reading.law import law_of, trials_of
from raysweep.runs.reading.view import RunView
from raysweep.schedulers import TRAINING_ITERATION
from raysweep.specs import RunRequest, SweepSpec, TrainSpec
from raysweep.specs.again import full_length, run_again
from raysweep.specs.bridge import Bridged, BridgedConfig, BridgeSpec, Way
from raysweep.specs.carried import CarriedConfig
from raysweep.specs.continuing import Continue
from raysweep.specs.identity import key_within
from raysweep.training.carrying import (
    config_at,
    copied_config,
    facts_of,
    laws_in,
    proxy_of,
    scored,
    stored_spec,
    within,
)
from raysweep.training.model_card import source_of
from raysweep.training.run import check_start, open_folder
from raysweep.training.run import run_training as train
from raysweep.transfer.rules import put

if TYPE_CHECKING:
    from raysweep.cluster.interrupts import Interrupts
    from raysweep.training.progress import TrainProgress
    from raysweep.transfer.law import Carried, Law

log = logging.getLogger("raysweep")
MOST_OF_BUDGET: Final = 0.5
"""A bridge ends when it has used this part of the training's `stop.time_budget_s`."""
_LEAST_S: Final = 1e-3
_TO_BEAT: Final[tuple[Way, ...]] = ("carried", "copied")


def run_training(
    request: RunRequest[TrainSpec],
    *,
    address: str | None = None,
    on_progress: Callable[[TrainProgress], None] | None = None,
    interrupts: Interrupts | None = None,
    job_number: int = 0,
) -> TrainOutcome:
    """As `training.run.run_training`; where the spec asks for a bridge, that runs first and decides.

    Raises: As there, and as `cluster.run.run_sweep`.
    """
    spec, folder = request.spec, open_folder(request)

    def run(asked: RunRequest[TrainSpec]) -> TrainOutcome:
        return train(
            asked,
            address=address,
            on_progress=on_progress,
            interrupts=interrupts,
            job_number=job_number,
        )

    if spec.bridge is None or spec.carried is None or spec.carried.bridge is not None:
        return run(request)
    stored = folder.read_spec()
    with _one_ray():
        if stored is None or stored.carried is None or stored.carried.bridge is None:
            check_start(spec, folder, address)
            carried = bridge_of(request).run(address, interrupts)
        else:
            folder.check_spec(spec)
            carried = stored.carried
        return run(RunRequest(spec=decided_spec(spec, carried), run=request.run))


def _one_ray() -> Any:
    from raysweep.cluster.ray.connection import sharing

    return sharing()


def decided_spec(spec: TrainSpec, carried: CarriedConfig) -> TrainSpec:
    """The training as its bridge has decided, which has the less time the longer the bridge took."""
    bridged, stop = carried.bridge, spec.stop
    assert bridged is not None
    if bridged.sweep_id:
        stop = stop.replace(deadline=resolve_deadline(stop.deadline, bridged.began_at))
    if stop.time_budget_s is not None:
        stop = stop.replace(time_budget_s=max(stop.time_budget_s - bridged.active_s, _LEAST_S))
    return spec.replace(config=carried.config, carried=carried, stop=stop)


def bridge_of(request: RunRequest[TrainSpec]) -> Bridge:
    """The bridge of a training that has a carried config.

    Raises:
        SpecError: The training does not say from which trial, or a rule has no value at the bridge's scale.
        StorageError: The sweep cannot be read.
    """
    source = source_of(request.spec)
    storage, _, sweep_id = (source.sweep if source is not None else "").rpartition("/")
    outcome = RunView("sweep", storage, sweep_id).outcome() if sweep_id else None
    trials = outcome.trials if isinstance(outcome, SweepOutcome) else ()
    best = next((each for each in trials if source and each.trial_id == source.trial_id), None)
    if not isinstance(outcome, SweepOutcome) or best is None:
        problem = f"the trial that the config is from is not stored at {storage or 'a known place'}"
        raise SpecError("bridge", problem, "check the storage, or leave bridge out")
    return Bridge(request=request, sweep=stored_spec(outcome), outcome=outcome, best=best)


@dataclass(frozen=True, kw_only=True)
class Bridge:
    """The trials that run before a training, and the decision by them."""

    request: RunRequest[TrainSpec]
    sweep: SweepSpec
    """The spec of the sweep that found the config."""
    outcome: SweepOutcome
    best: TrialOutcome

    @cached_property
    def law(self) -> Law | None:
        """That of the sweep's trials; None where no parameter is carried by a law."""
        return law_of(self.sweep, self.outcome) if laws_in(self.carried.transfer) else None

    @property
    def spec(self) -> BridgeSpec:
        """The bridge that the training asks for."""
        assert self.request.spec.bridge is not None
        return self.request.spec.bridge

    @property
    def carried(self) -> CarriedConfig:
        """The carried config that the training was given."""
        assert self.request.spec.carried is not None
        return self.request.spec.carried

    @property
    def scale(self) -> dict[str, float]:
        """The scale at which the trials run."""
        asked = self.spec.scale or self.request.spec.scale
        return {name: asked.get(name, self.best.scale[name]) for name in self.sweep.largest_scale}

    def run(self, address: str | None, interrupts: Interrupts | None = None) -> CarriedConfig:
        """Run the trials, or attach to them, and decide; the config that is trained, with the reason.

        `interrupts`: ends them, see `run_training`.
        """
        configs = self.ways()
        if len(configs) < MIN_SEEDS:
            bridged = Bridged(scale=self.scale, won="carried", why="all ways give the same config there")
            return self._decided(bridged)
        from raysweep.cluster.run import run_connected, run_sweep

        asked, again = self.sweep_request(configs), Continue(resume_cancelled=True)
        log.info("%s: the bridge runs %d configs as %s", self.request.run.id, len(configs), asked.run.id)
        if interrupts is None:
            ended = run_sweep(asked, address=address, continuing=again)
        else:
            ended = run_connected(asked, interrupts, on_progress=None, takeover=False, continuing=again)
            interrupts.begin_next()
        return self.settle(configs, ended)

    def settle(self, configs: Mapping[Way, Mapping[str, Any]], ended: SweepOutcome) -> CarriedConfig:
        """The config that is trained, by what the trials of these configs gave."""
        bridged = decide(self.outcome.mode, configs, ended, self.spec.seeds)
        used = ended.usage.active_s if ended.usage is not None else 0.0
        facts = {"scale": self.scale, "began_at": ended.started_at, "active_s": used}
        return self._decided(bridged.replace(**facts), ended)

    def ways(self) -> dict[Way, dict[str, Any]]:
        """The different configs at the bridge's scale, by how they are carried, with the values of scales."""
        here = {**proxy_of(self.sweep, self.best), **self.scale}
        said = self.law.at(self.scale) if self.law is not None else None
        found: dict[Way, dict[str, Any]] = {}
        for way, config in self.configs_at(here, said).items():
            whole = {**config, **self.scale}
            if whole not in found.values():
                found[way] = whole
        return found

    def configs_at(self, target: Mapping[str, float], said: Carried | None) -> dict[Way, dict[str, Any]]:
        """The config at a scale by each way; two only where no law carries to there."""
        how, by_law = self.carried.transfer, laws_in(self.carried.transfer)
        carried = config_at(target, how, self.sweep, self.best, said)
        found: dict[Way, dict[str, Any]] = {"carried": carried, "copied": copied_config(self.best)}
        if said is None or said.verdict != "carries":
            return found
        paths = {".".join(path): path for path, _ in self.sweep.parameter_space.leaves}
        for place, way in enumerate[Way](("lower", "upper")):
            found[way] = config_at(target, how, self.sweep, self.best, said)
            for name in by_law:
                put(found[way], paths[name], said.intervals[name][place])
        return found

    def sweep_request(self, configs: Mapping[Way, Mapping[str, Any]]) -> RunRequest[SweepSpec]:
        """The sweep of the trials. It ends when the training has to, or with its part of the time."""
        training, seeds = self.request.spec, self.spec.seeds
        reached = [self.best.metrics.get(TRAINING_ITERATION)]
        until = dict(self.spec.until)
        again = run_again(
            self.sweep.replace(stop=self.sweep.stop.replace(trial={})) if until else self.sweep,
            list(configs.values()),
            seeds,
            name=f"{training.name}-bridge",
            scale=self.scale,
            seed_param=self.spec.seed_param,
            limits=until or full_length(self.sweep, reached),
        )
        budget = training.stop.time_budget_s
        stop = again.stop.replace(
            deadline=training.stop.deadline,
            time_budget_s=budget * MOST_OF_BUDGET if budget is not None else None,
        )
        digest = digest_of([list(configs.values()), self.spec.model_dump(mode="json")])[:12]
        key = key_within(self.request.run.key, "bridge", digest)
        return RunRequest.of(again.replace(stop=stop, storage_path=training.storage_path), key)

    def _decided(self, bridged: Bridged, ended: SweepOutcome | None = None) -> CarriedConfig:
        """The carried config as it is trained, and what the law of all trials says."""
        asked, by_law = self.request.spec.to_dict(), laws_in(self.carried.transfer)
        bridged = bridged.replace(asked={name: asked[name] for name in ("config", "carried")})
        target = {**proxy_of(self.sweep, self.best), **self.request.spec.full_scale}
        there, facts = within(self.sweep, target), dict[str, Any]()
        said = before = None if self.law is None else self.law.at(there)
        joined = law_of(self.sweep, self.outcome, self._trials(ended)) if by_law and ended else self.law
        if joined is not None and joined.at(there).verdict == "carries":
            said = joined.at(there)
        given = self.configs_at(target, before)["carried"]
        own = {name: value for name, value in self.carried.config.items() if given.get(name) != value}
        config = {**self.configs_at(target, said)[bridged.won], **own}
        if joined is not None:
            names = {path[0] for path, _ in self.sweep.parameter_space.leaves}
            known = {name: value for name, value in config.items() if name in names}
            told = scored(joined, joined.at(there), there, known)
            facts = facts_of(told, by_law, self.sweep, self.outcome)
        return self.carried.replace(config=config, bridge=bridged, **facts)

    def _trials(self, ended: SweepOutcome) -> list[dict[str, Any]]:
        """The trials of the bridge as a law reads them; one that ran to `until` was stopped early."""
        found = list(trials_of(self.sweep, ended, seed_param=self.spec.seed_param))
        return [{**each, "status": "stopped"} for each in found] if self.spec.until else found


def decide(mode: Mode, configs: Mapping[Way, Mapping[str, Any]], ended: SweepOutcome, seeds: int) -> Bridged:
    """The winner: the carried config, unless another one beats it with 90 % confidence.

    One with fewer than two scores is not compared. Without the carried config the copied one is to be beaten,
    without that the best. Where none has scores, the copied one is trained.
    """
    ways = list(configs)
    scores = {way: _scores(mode, ended.trials[at :: len(ways)], seeds) for at, way in enumerate(ways)}
    known = [way for way in ways if len(_present(scores[way])) >= MIN_SEEDS]
    if not known:
        problem = next((trial.problem for trial in ended.trials if trial.problem), ended.why)
        why = f"no config has scores of {MIN_SEEDS} seeds ({one_line(problem or ended.status, 160)})"
        return Bridged(sweep_id=ended.sweep_id, ran=_ran(mode, configs, scores, {}), won="copied", why=why)
    to_beat = _to_beat(known, scores)
    others = [way for way in known if way != to_beat]
    gains = dict(zip(others, paired_gains([scores[way] for way in others], scores[to_beat]), strict=True))
    better = {way: gain for way, gain in gains.items() if gain is not None and (gain.lower or 0.0) > 0}
    won = max(better, key=lambda way: better[way].gain, default=to_beat)
    lost = "" if to_beat == "carried" else f"the carried config has no scores of {MIN_SEEDS} seeds; "
    why = lost + (_gain_line(better[won], to_beat) if won in better else f"no other config beats {to_beat}")
    return Bridged(sweep_id=ended.sweep_id, ran=_ran(mode, configs, scores, gains), won=won, why=why)


def _to_beat(known: Sequence[Way], scores: Mapping[Way, Scores]) -> Way:
    for way in _TO_BEAT:
        if way in known:
            return way
    return max(known, key=lambda way: fmean(_present(scores[way])))


def _gain_line(gain: Gain, to_beat: Way) -> str:
    error = f"standard error {gain.error:.2g}, " if gain.error is not None else ""
    return f"better than {to_beat} by {gain.gain:.4g} ({error}{gain.seeds} seeds), with 90 % confidence"


def _ran(
    mode: Mode,
    configs: Mapping[Way, Mapping[str, Any]],
    scores: Mapping[Way, Scores],
    gains: Mapping[Way, Gain | None],
) -> list[BridgedConfig]:
    found = []
    for way, config in configs.items():
        gain = gains.get(way)
        shown = {} if gain is None else {"gain": gain.gain, "error": gain.error, "at_least": gain.lower}
        told = [None if score is None else _signed(mode, score) for score in scores[way]]
        found.append(BridgedConfig(way=way, config=dict(config), scores=told, **shown))
    return found


def _scores(mode: Mode, trials: Sequence[TrialOutcome], seeds: int) -> list[float | None]:
    """By seed, larger is better; None where a trial did not end well, and for one that was not begun."""
    found = [
        _signed(mode, trial.score)
        if trial.state == "completed" and trial.is_feasible and _is_finite(trial.score)
        else None
        for trial in trials
    ]
    return [*found, *[None] * (seeds - len(found))]


def _signed(mode: Mode, score: float | None) -> float:
    assert score is not None
    return score if mode == "max" else -score


def _is_finite(score: float | None) -> bool:
    return score is not None and math.isfinite(score)


def _present(scores: Scores) -> list[float]:
    return [score for score in scores if score is not None]
