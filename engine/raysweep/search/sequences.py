"""`sobol` and `halton`: sequences that cover the space evenly (see `search.models.sequences`)."""

from __future__ import annotations

from raysweep.search.base import Searcher, SearchSetup
from raysweep.search.machinery.model import refuse_grid
from raysweep.search.options import SearchOptions, needs_packages


class SobolOptions(SearchOptions):
    """Points of a Sobol sequence (Sobol, 1967), scrambled (Owen, 1998): they cover the space evenly."""

    metrics = "none"
    is_bounded = True
    is_counted = True

    scramble: bool = True
    """Scramble the sequence with the sweep's seed; without, all sweeps get the same points."""

    def make(self, setup: SearchSetup) -> Searcher:
        """The searcher, before its first ask."""
        refuse_grid(setup.space.searched, "sobol")
        with needs_packages("sobol", "search", "scipy", "numpy"):
            from raysweep.search.models.sequences import SequenceSearcher
        return SequenceSearcher(setup.space, setup.num_samples, setup.seed, "sobol", scramble=self.scramble)


class HaltonOptions(SearchOptions):
    """Points of a Halton sequence (Halton, 1960), scrambled (Owen, 2017): they cover the space evenly."""

    metrics = "none"
    is_bounded = True
    is_counted = True

    scramble: bool = True
    """Scramble the sequence with the sweep's seed; without, all sweeps get the same points."""

    def make(self, setup: SearchSetup) -> Searcher:
        """The searcher, before its first ask."""
        refuse_grid(setup.space.searched, "halton")
        with needs_packages("halton", "search", "scipy", "numpy"):
            from raysweep.search.models.sequences import SequenceSearcher
        return SequenceSearcher(setup.space, setup.num_samples, setup.seed, "halton", scramble=self.scramble)
