"""Search: which config the next trial gets. Importing this room loads no search library.

Each searcher is one file of this room, with its options. An algorithm that needs a library is in `models/`:
the options import it in `make`.
"""

from raysweep.search.base import Result, Searcher, SearchSetup, TrialEnd, result_of, tell_end
from raysweep.search.machinery.warm_start import WarmStart
from raysweep.search.making import load_searcher, make_searcher

__all__ = [
    "Result",
    "SearchSetup",
    "Searcher",
    "TrialEnd",
    "WarmStart",
    "load_searcher",
    "make_searcher",
    "result_of",
    "tell_end",
]
