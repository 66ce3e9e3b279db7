"""`auto`: the method that suits the space and the number of results, by the rules of OptunaHub's AutoSampler.

In a space of numbers, which a choice between numbers in order counts as, a Gaussian process, relieved where
it finds nothing better, and CMA-ES that begins with its results once there are many (with constraints TPE);
with other choices, or parameters that only some configs have, TPE. Where costs count, the Gaussian process in
any case. Where the package for one of them is not
installed, TPE takes its place, with a note. With several metrics TPE, and once there are many
results NSGA-II, with four metrics and more NSGA-III.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any, Final, Protocol

from raysweep.search.base import Result
from raysweep.search.cma_es import CmaEsOptions
from raysweep.search.gp import GpOptions
from raysweep.search.machinery.cells import LeafPath
from raysweep.search.machinery.feasible import avoids, end_infeasible
from raysweep.search.machinery.model import Model
from raysweep.search.machinery.ordinal import Ordered
from raysweep.search.machinery.stalled import RelievedModel
from raysweep.search.models.nsga import NsgaModel
from raysweep.search.models.optuna_model import Modes
from raysweep.search.models.tpe import TpeModel
from raysweep.search.nsga import Nsga2Options, Nsga3Options
from raysweep.search.tpe import TpeOptions
from raysweep.space.domains import Choice
from raysweep.space.parsed import Space

FEW: Final = 3
"""Of no more metrics than these, crowding keeps a front apart; of more, reference points do."""


class _Options(Protocol):
    """Those of `auto`."""

    @property
    def switch_after(self) -> int: ...

    @property
    def cost_attr(self) -> str | None: ...


class AutoModel:
    """One model, and another one from a certain number of results on; both know all of them.

    Args:
        space: the parsed search space, without `grid_search`.
        num_samples: how many configs there will be; None: as many as there is time for.
        seed: the seed of the sweep.
        mode: "min" or "max"; of several metrics, one for each.
        options: see `AutoOptions`.
        has_constraints: whether results have to satisfy something.
    """

    def __init__(
        self,
        space: Space,
        num_samples: int | None,
        seed: int,
        mode: Modes,
        options: _Options,
        *,
        has_constraints: bool = False,
    ) -> None:
        self._switch_after = options.switch_after
        self._results: set[int] = set()
        self._lacking: list[str] = []
        self._ordered = Ordered(space)
        space = self._ordered.space
        has_choices = bool(space.parents) or any(
            isinstance(domain, Choice) and domain.cardinality > 1 for _, domain in space.searched
        )
        self._first: Model = (
            self._few(space, seed, mode, options.cost_attr)
            if isinstance(mode, str) and (options.cost_attr is not None or not has_choices)
            else TpeModel(space, seed, mode, TpeOptions())
        )
        self._later = self._first
        may_be_many = num_samples is None or num_samples > options.switch_after
        if options.cost_attr is not None:
            pass  # of the three, only a Gaussian process goes by costs
        elif not isinstance(mode, str):
            if may_be_many and not space.parents:
                nsga = Nsga2Options() if len(mode) <= FEW else Nsga3Options()
                self._later = NsgaModel(space, seed, mode, nsga)
        elif not has_choices and may_be_many:
            make = self._tpe_later if has_constraints else self._many
            self._later = make(space, seed, mode)
        self.paths = self._first.paths

    @property
    def substitution(self) -> str | None:
        """The reasons why TPE runs instead, and how to have the other model."""
        if not self._lacking:
            return None
        return f"search: auto uses TPE: {'; '.join(self._lacking)}"

    def sample(self, number: int, attempt: int) -> dict[LeafPath, Any]:
        """Return values of the leaves, by the model whose turn it is."""
        return self._ordered.to_values(self._now().sample(number, attempt))

    def add(self, number: int, values: Mapping[LeafPath, Any]) -> None:
        """Let both know."""
        places = self._ordered.to_places(values)
        for model in self._models():
            model.add(number, places)

    def end(self, number: int, result: Result | None) -> None:
        """Let both know."""
        for model in self._models():
            model.end(number, result)
        if result is not None:
            self._results.add(number)
        else:
            self._results.discard(number)

    def end_infeasible(self, number: int, worst: Result) -> None:
        """Let both know."""
        for model in self._models():
            end_infeasible(model, number, worst)
        self._results.discard(number)

    def avoids(self, number: int) -> bool:
        """True if the model whose turn it is looks at failures itself."""
        return avoids(self._now(), number)

    def add_earlier(self, values: Mapping[LeafPath, Any], result: Result) -> None:
        """Let both know."""
        places = self._ordered.to_places(values)
        for model in self._models():
            model.add_earlier(places, result)

    def _now(self) -> Model:
        return self._first if len(self._results) < self._switch_after else self._later

    def _models(self) -> tuple[Model, ...]:
        return (self._first,) if self._later is self._first else (self._first, self._later)

    def _few(self, space: Space, seed: int, mode: str, cost_attr: str | None) -> Model:
        missing = [name for name in ("torch", "scipy") if not _is_there(name)]
        if missing and cost_attr is None:
            verb = "is" if len(missing) == 1 else "are"
            what = f"{' and '.join(missing)} {verb} not installed, which a Gaussian process needs"
            self._lacking.append(f"{what} (pip install raysweep[gp])")
            return TpeModel(space, seed, mode, TpeOptions())
        from raysweep.search.models.gp import GpModel

        gaussian = GpModel(space, seed, mode, GpOptions(cost_attr=cost_attr))
        tpe = TpeModel(space, seed, mode, TpeOptions())
        return RelievedModel(space, seed, mode, gaussian, tpe)

    def _tpe_later(self, space: Space, seed: int, mode: str) -> Model:
        is_there = isinstance(self._first, TpeModel)
        return self._first if is_there else TpeModel(space, seed, mode, TpeOptions())

    def _many(self, space: Space, seed: int, mode: str) -> Model:
        if not _is_there("cmaes"):
            self._lacking.append("cmaes is not installed, for many trials (pip install raysweep[search])")
            return self._tpe_later(space, seed, mode)
        from raysweep.search.models.cma import CmaModel

        return CmaModel(space, seed, mode, CmaEsOptions(), after=self._switch_after)


def _is_there(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ValueError:  # put into sys.modules by hand, without a spec
        return False
