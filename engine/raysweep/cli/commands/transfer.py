"""`raysweep transfer`: how the best config of a sweep moves with the scale. Reads the stored outcome only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from raysweep.cli.consoles import make_console, print_facts, print_json
from raysweep.cli.exit_codes import DONE
from raysweep.cli.lookup import open_sweep
from raysweep.cli.tables import Listing
from raysweep.documents.validation import Problem, show
from raysweep.errors import SpecError
from raysweep.numeric.shown import show_number
from raysweep.runs.reading.law import law_of
from raysweep.space.parsed import Space
from raysweep.space.scales import read_scale, show_scale
from raysweep.training.carrying import stored_spec

if TYPE_CHECKING:
    from raysweep.transfer.law import Carried, Law


def show_transfer(name: str, storage: str | None, sizes: Sequence[str], *, is_json: bool) -> int:
    """Show each parameter at each proxy scale and at the target; returns the exit code.

    Raises:
        SpecError: A size cannot be read, the sweep has not ended, or its trials give no law.
        SweepNotFoundError: There is no such sweep.
    """
    asked = _sizes(sizes)
    folder = open_sweep(name, storage)
    outcome = folder.read_outcome()
    if outcome is None:
        problem = f"sweep {folder.sweep_id!r} has not ended"
        raise SpecError("transfer", problem, "wait for it, or resume it first")
    sweep = stored_spec(outcome)
    law = law_of(sweep, outcome)
    target = {**sweep.largest_scale, **asked}
    said = law.at(target)
    space = sweep.parameter_space
    rows = [
        _row(".".join(path), space.value_at(said.config, path), law, said) for path in _paths(space, said)
    ]
    if is_json:
        print_json(_as_json(folder.sweep_id, law, said, target, rows))
        return DONE
    console = make_console()
    at = [show_scale(scale) for scale in law.scales]
    table = Listing(("parameter", *(f"{each}>" for each in at), "law>", "carried>", "80 %>"))
    for row in rows:
        optima = [_shown(value) for value in row["optima"]]
        interval = " to ".join(map(show_number, row["interval"] or ()))
        table.add(row["parameter"], *optima, _shown(row["law"]), show_number(row["carried"]), interval)
    table.show(console)
    low, high = show_number(said.score_low), show_number(said.score_high)
    print_facts(
        console,
        ("target", show_scale(target)),
        *([("nights", f"{law.nights} earlier share the law")] if law.nights else []),
        (outcome.metric, f"{show_number(said.score)}, 80 %: {low} to {high}"),
        ("verdict", said.verdict),
        *(("because", reason) for reason in said.reasons),
    )
    return DONE


def _sizes(given: Sequence[str]) -> dict[str, float]:
    """`rows=336776` as names and sizes. Raises SpecError."""
    found: dict[str, Any] = {}
    for text in given:
        name, _, value = text.partition("=")
        try:
            found[name] = float(value)
        except ValueError:
            raise SpecError("--scale", f"expected NAME=SIZE, got {show(text)}", "write rows=336776") from None
    try:
        return read_scale(found)
    except Problem as problem:
        issue = problem.issues[0]
        raise SpecError("--scale", issue.problem, issue.fix) from None


def _paths(space: Space, said: Carried) -> list[tuple[str, ...]]:
    """The parameters that are searched and that the carried config has."""
    found = []
    for path, _ in space.searched:
        try:
            space.value_at(said.config, path)
        except (KeyError, IndexError, TypeError, ValueError):
            continue  # in a branch that it does not take
        found.append(path)
    return found


def _row(name: str, carried: Any, law: Law, said: Carried) -> dict[str, Any]:
    return {
        "parameter": name,
        "optima": [law.optimum_at(scale).get(name) for scale in law.scales],
        "law": said.optimum.get(name),
        "carried": carried,
        "interval": list(said.intervals[name]) if name in said.intervals else None,
    }


def _shown(value: float | None) -> str:
    return "same" if value is None else f"{value:.4g}"


def _as_json(
    sweep_id: str, law: Law, said: Carried, target: Mapping[str, float], rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    return {
        "sweep_id": sweep_id,
        "scales": law.scales,
        "nights": law.nights,
        "target": dict(target),
        "parameters": list(rows),
        "config": said.config,
        "score": said.score,
        "score_low": said.score_low,
        "score_high": said.score_high,
        "verdict": said.verdict,
        "reasons": said.reasons,
    }
