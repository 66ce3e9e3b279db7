"""TPE search by Optuna, rebuilt from the journal instead of unpickled.

Algorithm: Bergstra et al., "Algorithms for Hyper-Parameter Optimization", NIPS 2011, as in
`optuna.samplers.TPESampler`. Every ask uses a fresh sampler whose seed derives from (sweep seed, trial
number), so it depends on the study's trials only, and a study that is filled again from the journal goes
on exactly as the one that was lost. Sampled trials and restored ones take the same way into the study.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import optuna
from optuna.samplers import TPESampler
from optuna.trial import TrialState, create_trial

from raysweep.errors import SpecError
from raysweep.search.base import TrialEnd, derived_rng, derived_seed
from raysweep.search.cells import Cell, LeafPath, cells_of, draw_unused, exhausted_note, leaf_value, widened
from raysweep.search.configview import with_views
from raysweep.search.tpe_params import params_of, quiet_study
from raysweep.spec.domains import SampleFrom
from raysweep.spec.search import TpeOptions
from raysweep.spec.space import Space

ATTEMPTS = 8
"""How many samples look for an unused config in a discrete space before the unused ones are counted off."""


class TpeSearcher:
    """Tree-structured Parzen estimator over a study in memory.

    Trials that were asked for and not told count as running; with `constant_liar` their neighbourhood is
    avoided. In a discrete space no config is asked for twice, and the search ends with the last one
    (`note` says so).

    Args:
        space: the parsed search space, without `grid_search`.
        num_samples: how many configs.
        seed: the seed of the sweep.
        mode: "min" or "max".
        options: see `TpeOptions`.

    Raises:
        SpecError: the space holds a `grid_search`.
    """

    is_adaptive = True

    def __init__(self, space: Space, num_samples: int, seed: int, mode: str, options: TpeOptions) -> None:
        self._space = with_views(space)
        self._seed = seed
        self._options = options
        self._params = params_of(space.searched)
        self._study = quiet_study("maximize" if mode == "max" else "minimize")
        modelled = {param.path for param in self._params}
        # Normally distributed leaves and those with one value: drawn by us.
        self._unmodelled = [leaf for leaf in space.searched if leaf[0] not in modelled]
        has_functions = any(isinstance(domain, SampleFrom) for _, domain in space.leaves)
        self._cells = None if has_functions else cells_of(space.searched)
        size = None if self._cells is None else self._cells.size
        self.total: int | None = num_samples if size is None else min(num_samples, size)
        self.note: str | None = None if size is None else exhausted_note(size, num_samples)
        self._used: set[tuple[int, ...]] = set()
        self._running: dict[int, int] = {}  # our number -> Optuna's
        self._added = 0

    def ask(self, number: int) -> dict[str, Any] | None:
        """Return the config of trial `number`; None past the last sample. A number is asked for once."""
        if self.total is not None and number >= self.total:
            return None
        cell: Cell | None = None
        if self._cells is None:
            values = self._sample(number, 0)
        else:
            cell, drawn = draw_unused(
                self._cells,
                self._used,
                lambda attempt: self._sample(number, attempt),
                derived_rng(self._seed, number),
                ATTEMPTS,
            )
            values = dict(drawn)
        # First, as it calls functions of the user: an ask that raises leaves the study as it was.
        config = self._space.build(values)
        self._add(number, values)
        if cell is not None:
            self._used.add(cell)
        return config

    def restore(self, number: int, config: dict[str, Any]) -> None:
        """Put an earlier ask into the study, as running. Call in the order of the numbers.

        Raises:
            SpecError: the config does not fit the search space.
        """
        try:
            values = {path: leaf_value(config, path) for path, _ in self._space.searched}
            self._add(number, values)
            if self._cells is not None:
                self._used.add(self._cells.cell(values))
        except (ValueError, TypeError, KeyError, IndexError) as error:
            problem = f"the saved config of trial {number} does not fit ({error})"
            raise SpecError(
                "param_space", problem, "resume with the spec that the sweep was started with"
            ) from error

    def tell(self, number: int, value: float | None, state: TrialEnd) -> None:
        """Report how a trial ended; a second report on the same trial changes nothing.

        A stopped trial counts with its value as a completed one does. Without a value, or with NaN, it
        failed.
        """
        optuna_number = self._running.pop(number, None)
        if optuna_number is None:
            return
        if state == "failed" or value is None or math.isnan(value):
            self._study.tell(optuna_number, state=TrialState.FAIL)
        else:
            self._study.tell(optuna_number, float(value))

    def tell_earlier(self, config: dict[str, Any], value: float) -> None:
        """Put a trial of an earlier sweep into the study. A discrete space may try its config again."""
        values = {path: leaf_value(config, path) for path, _ in self._space.searched}
        params = {param.name: param.to_param(values[param.path]) for param in self._params}
        distributions = {param.name: param.distribution for param in self._params}
        self._study.add_trial(create_trial(value=float(value), params=params, distributions=distributions))
        self._added += 1

    def _sample(self, number: int, attempt: int) -> dict[LeafPath, Any]:
        """Return values for all leaves; what `Study.ask` does, for a trial that is not in the study yet."""
        sampler = self._sampler(derived_seed(self._seed, number, attempt))
        trial = create_trial(state=TrialState.RUNNING)
        trial.number = self._added
        relative_space = sampler.infer_relative_search_space(self._study, trial)
        sampled = sampler.sample_relative(self._study, trial, relative_space)
        rng = derived_rng(self._seed, derived_seed(self._seed, number, attempt))
        values = {path: widened(domain, attempt).sample(rng) for path, domain in self._unmodelled}
        for param in self._params:
            raw = sampled.get(param.name)
            if raw is None:
                raw = sampler.sample_independent(self._study, trial, param.name, param.distribution)
            values[param.path] = param.to_value(raw)
        return values

    def _sampler(self, seed: int) -> TPESampler:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return TPESampler(
                seed=seed % 2**32,
                n_startup_trials=self._options.n_startup_trials,
                n_ei_candidates=self._options.n_ei_candidates,
                multivariate=self._options.multivariate,
                constant_liar=self._options.constant_liar,
            )

    def _add(self, number: int, values: dict[LeafPath, Any]) -> None:
        params = {param.name: param.to_param(values[param.path]) for param in self._params}
        distributions = {param.name: param.distribution for param in self._params}
        trial = create_trial(state=TrialState.RUNNING, params=params, distributions=distributions)
        self._study.add_trial(trial)
        self._running[number] = self._added
        self._added += 1
