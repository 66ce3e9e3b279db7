"""The facts behind a verdict, for the evidence."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from raysweep.outcome import GateOutcome, SweepOutcome
from raysweep.runs.across_runs.champions import Champion
from raysweep.runs.across_runs.evidence import Drift, Facts

_PACKAGES: Final = ("raysweep", "ray")


def facts_of(
    verdict: GateOutcome, beaten: Champion | None, outcome: SweepOutcome, again: SweepOutcome
) -> Facts:
    """The facts for the evidence of a verdict.

    Args:
        verdict: What was decided.
        beaten: The champion that the candidates had to beat, as it is stored.
        outcome: That of the sweep.
        again: That of the gate's sweep.
    """
    runs = {"sweep": outcome, "gate": again}
    return Facts(
        verdict=verdict,
        drift=_drift(verdict, beaten),
        constraints=outcome.constraints,
        usage={name: run.usage for name, run in runs.items() if run.usage is not None},
        code_digest=outcome.code_digest,
        gate_code_digest=again.code_digest,
        spec_digest=outcome.spec_digest,
        versions={
            **{name: run.raysweep_version for name, run in runs.items() if run.raysweep_version},
            **_versions(),
        },
    )


def _drift(verdict: GateOutcome, beaten: Champion | None) -> Drift | None:
    """None where the champion has no scores of tonight."""
    champion = verdict.champion
    if champion is None or beaten is None or champion.mean is None or not champion.scores:
        return None
    return Drift(then=beaten.mean, now=champion.mean, since=beaten.at)


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
