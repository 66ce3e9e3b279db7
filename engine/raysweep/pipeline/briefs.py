"""Reading a brief again: what an XCom, an event or a flow's parameter brought to the training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from raysweep.errors import SpecError, SweepNotFoundError
from raysweep.outcome import SweepOutcome
from raysweep.runs.view import RunView

_FIX: Final = "give what a sweep step handed on, or an entry of its top_k"


def best_config(brief: Any) -> Mapping[str, Any]:
    """The config that a sweep's brief hands on; one that was too large for it is read where it is stored.

    Args:
        brief: What `raysweep.brief.brief` made of a sweep's outcome, or an entry of its `top_k`.

    Raises:
        SpecError: It holds no config.
        SweepNotFoundError: Its storage holds no outcome.
        StorageError: The storage does not answer.
    """
    if not isinstance(brief, Mapping):
        raise SpecError("outcome", f"is a {type(brief).__name__}", _FIX)
    best = brief.get("best", brief)
    if not isinstance(best, Mapping) or "config" not in best:
        raise SpecError("outcome", "has no best trial", _FIX)
    config = best["config"]
    if isinstance(config, Mapping):
        return config
    trials = stored_outcome(brief).trials
    trial = next((each for each in trials if each.trial_id == best.get("trial_id")), None)
    if trial is None:
        raise SpecError("outcome", f"has no trial {best.get('trial_id')!r}", "check the storage")
    return trial.config


def stored_outcome(brief: Any) -> SweepOutcome:
    """The whole outcome of a sweep's brief, from where it is stored.

    Raises: SpecError, SweepNotFoundError, StorageError.
    """
    if not isinstance(brief, Mapping) or not brief.get("uri"):
        raise SpecError("outcome", "does not say where the sweep is stored", _FIX)
    storage, _, sweep_id = str(brief["uri"]).rpartition("/")
    found = RunView("sweep", storage, sweep_id).outcome()
    if not isinstance(found, SweepOutcome):
        raise SweepNotFoundError(sweep_id, storage, "see whether this machine can read the storage")
    return found


def why_not_trained(brief: Any) -> str:
    """Why a training that gets this brief is skipped; empty where it is not."""
    if not isinstance(brief, Mapping) or brief.get("promoted") is not False:
        return ""
    why = (brief.get("gate") or {}).get("why", "the gate did not promote the best config")
    return f"training skipped: {why}"
