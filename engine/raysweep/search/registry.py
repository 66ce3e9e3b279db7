"""The searchers of raysweep: the name in a spec, and where its options are. The first one is the default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

KINDS: Final[Mapping[str, str]] = {
    "auto": "raysweep.search.auto:AutoOptions",
    "random": "raysweep.search.variants:RandomOptions",
    "grid": "raysweep.search.variants:GridOptions",
    "tpe": "raysweep.search.tpe:TpeOptions",
    "gp": "raysweep.search.gp:GpOptions",
    "bohb": "raysweep.search.bohb:BohbOptions",
    "cma_es": "raysweep.search.cma_es:CmaEsOptions",
    "nsga2": "raysweep.search.nsga:Nsga2Options",
    "nsga3": "raysweep.search.nsga:Nsga3Options",
    "configs": "raysweep.search.configs:ConfigsOptions",
}

FORMER: Final[Mapping[str, str]] = {
    "brute_force": "write search: {random: {distinct: true}}, and num_samples of at least all configs",
    "sobol": "write search: random",
    "halton": "write search: random",
    "dehb": "write search: bohb with scheduler: hyperband",
}
"""Names of searchers that measured worse than these, and what to write."""
