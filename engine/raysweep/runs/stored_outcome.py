"""outcome.json: one JSON object whose trials come last, a line for each.

The lines let a reader hold the trials as text and parse the few that it needs. Any JSON reader can read it.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import orjson

from raysweep.documents.stored_paths import to_reference, to_uri
from raysweep.outcome.places import sweep_with
from raysweep.outcome.record import without_collector
from raysweep.outcome.sweep import SweepOutcome
from raysweep.outcome.trials import Trials
from raysweep.storage.objects.sealed import seal_open, sealed_end, unseal

_BEGIN: Final = b',"trials":[\n'
_END: Final = b"\n]"


def encode_outcome(outcome: SweepOutcome, base: str) -> bytes:
    """The outcome as it is stored below `base`: what it names there is relative to it."""
    with without_collector():
        trials = Trials.packed(outcome.trials, base)
        head = sweep_with(outcome, partial(to_reference, base)).model_copy(update={"trials": ()})
        fields = head.model_dump(mode="json")
    del fields["trials"]
    return seal_open([orjson.dumps(fields)[:-1], _BEGIN, trials.text, _END])


def decode_outcome(data: bytes, base: str) -> SweepOutcome | None:
    """The outcome that is stored below `base`; None: a byte of it changed. Its trials stay text.

    Raises:
        SpecError: It is none.
    """
    end = sealed_end(data)
    first = data.find(b"\n") + 1
    if end is None or not data.endswith(_BEGIN, 0, first) or not data.endswith(_END, first, end):
        # Written by hand, or in another layout.
        whole = unseal(data)
        outcome = SweepOutcome.from_json(whole) if whole is not None else None
        trials = Trials.packed(outcome.trials, base) if outcome is not None else Trials()
    else:
        outcome = SweepOutcome.from_json(data[: first - len(_BEGIN)] + b"}")
        trials = Trials.stored(data, base, first, end - len(_END))
    if outcome is None:
        return None
    if outcome.tuples:
        trials = trials.with_tuples(outcome.tuples)
    found = sweep_with(outcome, partial(to_uri, base)).model_copy(update={"trials": trials})
    return found.model_copy(update={"uri": base}) if found.uri else found
