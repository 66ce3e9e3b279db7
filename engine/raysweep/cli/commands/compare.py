"""`raysweep compare`: is the new one better than the base, by the seeds or folds that both ran?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raysweep.cli.consoles import make_console, print_facts, print_json
from raysweep.cli.exit_codes import DONE
from raysweep.cli.lookup import read_sweep
from raysweep.errors import SpecError
from raysweep.numeric.shown import show_number
from raysweep.outcome import Standing
from raysweep.outcome.paired import Comparison, compare, configs_of
from raysweep.outcome.showing.formatting import show_config
from raysweep.runs.reading.naming.lookup import find_sweep
from raysweep.specs import SweepSpec


class _Sweep:
    """One of the two: a sweep, or the config of one of its trials (`NAME@KEY#3`)."""

    def __init__(self, given: str, storage: str | None) -> None:
        name, mark, number = given.partition("#")
        if mark and not number.isdigit():
            raise SpecError("compare", f"{given!r} names no trial", "write NAME@KEY#3 for that of trial 3")
        self.number = int(number) if mark else None
        self.standing, self._reader = read_sweep(name, storage)
        folder = find_sweep(name, storage)
        record, self.outcome = folder.read_spec(), folder.read_outcome()
        self.spec = SweepSpec.from_any(dict(record.spec)) if record is not None else None

    @property
    def trials(self) -> Any:
        return self._reader.trials()

    @property
    def seed_params(self) -> list[str]:
        """The parameter that gets the seed, by its spec."""
        parts = () if self.spec is None else (self.spec.repeat, self.spec.search)
        found = (getattr(part, "seed_param", None) for part in parts)
        return [name for name in found if name is not None]

    def shown(self) -> dict[str, Any]:
        """The run's name."""
        outcome = self.outcome
        return {
            "sweep_id": self.standing.run_id,
            "key": self.standing.key,
            "uri": self.standing.uri,
            "code_digest": outcome.code_digest if outcome is not None else "",
        }


def run(base: str, new: str, by: Sequence[str], level: float, storage: str | None, *, is_json: bool) -> int:
    """Compare two sweeps, or configs of them; returns the exit code.

    Raises:
        SpecError: They do not have the same metric, or no trial of one has a score.
        SweepNotFoundError, StorageError: One cannot be read.
    """
    one, other = _Sweep(base, storage), _Sweep(new, storage)
    metric, mode = _metric(one.standing, other.standing)
    names = list(by) or sorted({*one.seed_params} & {*other.seed_params})
    ours, theirs = (configs_of(each.trials, names, each.number) for each in (one, other))
    found = compare(ours, theirs, mode, is_paired=bool(names), level=level)
    if not (one.standing.has_ended and other.standing.has_ended):
        why = "one of them has not ended: compare them again then"
        found = found.model_copy(update={"verdict": "undecided", "why": why, "more_seeds": None})
    is_same = one.standing.run_id == other.standing.run_id and found.base.config == found.new.config
    if is_same:
        why = "they are the same runs"
        found = found.model_copy(update={"verdict": "undecided", "why": why, "more_seeds": None})
    if is_json:
        print_json(_document(found, metric, mode, names, one, other))
    else:
        _print(found, metric, names)
    return DONE


def _metric(one: Standing, other: Standing) -> tuple[str, str]:
    if not one.metric or (one.metric, one.mode) != (other.metric, other.mode):
        problem = f"{one.metric or 'no metric'} ({one.mode}) and {other.metric or 'no metric'} ({other.mode})"
        raise SpecError("compare", f"the sweeps are ranked by {problem}", "compare sweeps of one metric")
    return one.metric, one.mode


def _document(
    found: Comparison, metric: str, mode: str, by: Sequence[str], one: _Sweep, other: _Sweep
) -> dict[str, Any]:
    whole = found.model_dump(mode="json")
    sides = {"base": whole["base"] | one.shown(), "new": whole["new"] | other.shown()}
    return {**whole, **sides, "metric": metric, "mode": mode, "by": list(by)}


def _print(found: Comparison, metric: str, by: Sequence[str]) -> None:
    console = make_console()
    console.print(f"{found.verdict}: {found.why}", style="bold", soft_wrap=True)
    facts = []
    for name, side in (("base", found.base), ("new", found.new)):
        more = f", best of {side.configs} configs" if side.configs > 1 else ""
        text = (
            f"{metric} {show_number(side.mean)} over {side.scores} trials{more}: {show_config(side.config)}"
        )
        facts.append((name, text))
    pairs = (
        f"by {', '.join(by)}: {found.common} in common" if by else "not paired: no seed parameter; see --by"
    )
    facts.append(("test", f"{found.test}, {pairs}, level {found.level:g}"))
    if found.more_seeds is not None:
        facts.append(("more", f"{found.more_seeds} more seeds of each would decide it, 4 times of 5"))
    print_facts(console, *facts)
