"""An ended sweep as it is stored: two objects.

outcome.json                        the head: how the sweep stands, bounded whatever the number of trials
trials-<generation>-<digest>.json   all trials, a line for each, and the configs of a sweep with `repeat`

The head is written last and names its trials: it is one outcome or the other, and never parts of two. Lists,
`status` and `best` read the head alone. Readers hold the trials as text and parse the few that they need.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Final, NamedTuple

import orjson

from raysweep.documents.stored_paths import to_reference, to_uri
from raysweep.errors import SpecError
from raysweep.outcome import Standing, SweepOutcome
from raysweep.outcome.ended import status_of_outcome
from raysweep.outcome.places import standing_with, sweep_with
from raysweep.outcome.record import without_collector
from raysweep.outcome.standing import MAX_NOTES
from raysweep.outcome.trials import Trials
from raysweep.outcome.tupled import with_tuples_in
from raysweep.storage.objects.sealed import digest, seal, seal_open, sealed_end, unseal

FORMAT: Final = 2
_BEGIN: Final = b',"trials":[\n'
_END: Final = b"\n]"
_OF_TRIALS: Final = ("trials", "configs")
_OF_STANDING: Final = (
    "attempts", "trial_s", "pareto", "pareto_size", "curve", "dots", "top", "failures", "first_failure",
)  # fmt: skip
_WITH_CONFIGS: Final = ("best", "top", "failures", "first_failure")


class StoredOutcome(NamedTuple):
    """The two objects, the name of the second, and the standing that the head has."""

    head: bytes
    trials: bytes
    trials_name: str
    standing: Standing


def encode_outcome(outcome: SweepOutcome, base: str) -> StoredOutcome:
    """The outcome as it is stored below `base`: what it names there is relative to it."""
    change = partial(to_reference, base)
    with without_collector():
        packed = Trials.packed(outcome.trials, base)
        head = sweep_with(outcome, change).model_copy(update={"trials": ()}).model_dump(mode="json")
        standing = status_of_outcome(outcome, now=0.0)
        stored = standing_with(standing, change).model_dump(mode="json")
    configs = orjson.dumps({"configs": head["configs"]})[:-1]
    trials = seal_open([configs, _BEGIN, packed.text, _END])
    name = f"trials-{outcome.generation:06d}-{digest(trials)[:16]}.json"
    fields = {key: value for key, value in head.items() if key not in _OF_TRIALS}
    fields |= {key: stored[key] for key in _OF_STANDING}
    fields |= {"wanted_trials": outcome.wanted_trials, "trials_object": name, "format": FORMAT}
    return StoredOutcome(seal(orjson.dumps(fields)), trials, name, standing)


def decode_head(data: bytes) -> dict[str, Any]:
    """The head's fields. Raises: SpecError."""
    whole = unseal(data)
    if whole is None:
        raise SpecError("outcome.json", "its hash is wrong", "restore it")
    try:
        fields = orjson.loads(whole)
        found = fields["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise SpecError("outcome.json", f"it is no head of an outcome: {error!r}", "restore it") from None
    if found != FORMAT:
        raise SpecError("outcome.json", f"it has format {found}, not {FORMAT}", "restore it")
    return dict(fields)


def standing_of(fields: dict[str, Any], base: str) -> Standing:
    """The standing of the sweep, by the head that is stored below `base`."""
    named = {"run_id": fields["sweep_id"], "num_trials": fields["wanted_trials"], "has_ended": True}
    standing = standing_with(Standing.from_fields(fields | named), partial(to_uri, base))
    update: dict[str, Any] = {"read_at": time.time(), "uri": base, "notes": standing.notes[-MAX_NOTES:]}
    if fields["tuples"]:
        update |= {name: with_tuples_in(getattr(standing, name), fields["tuples"]) for name in _WITH_CONFIGS}
    return standing.model_copy(update=update)


def outcome_of(fields: dict[str, Any], trials: bytes, base: str) -> SweepOutcome:
    """The outcome of this head and these trials. Raises: SpecError."""
    end, first = sealed_end(trials), trials.find(b"\n") + 1
    if end is None or not trials.endswith(_BEGIN, 0, first) or not trials.endswith(_END, first, end):
        raise SpecError(fields["trials_object"], "its hash is wrong", "restore it")
    configs = orjson.loads(trials[: first - len(_BEGIN)] + b"}")
    outcome = SweepOutcome.from_fields(fields | configs)
    held = Trials.stored(trials, base, first, end - len(_END))
    if outcome.tuples:
        held = held.with_tuples(outcome.tuples)
    found = sweep_with(outcome, partial(to_uri, base)).model_copy(update={"trials": held})
    return found.model_copy(update={"uri": base}) if found.uri else found
