"""`raysweep nights`: the history of one name, a row a night."""

from __future__ import annotations

import difflib
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

from raysweep.cli.commands.status import show_gate
from raysweep.cli.consoles import make_console, print_facts, print_rows
from raysweep.cli.exit_codes import DONE
from raysweep.cli.lookup import command
from raysweep.cli.tables import Listing
from raysweep.errors import SweepNotFoundError
from raysweep.numeric.shown import show_number
from raysweep.outcome import GateOutcome
from raysweep.outcome.predicted import Predicted
from raysweep.outcome.showing.formatting import show_column
from raysweep.pages.evidence import show_budget
from raysweep.runs.across_runs.champions import Champion, read_records
from raysweep.runs.reading.naming.references import read_reference
from raysweep.runs.reading.nights import Night, nights_at, why_longer
from raysweep.specs.identity import slug


def show_nights(name: str, storage: str | None, last: int | None, is_json: bool, start: int = 0) -> int:
    """List the nights of a name, the newest first, with the verdict of each and why one took longer.

    Raises:
        SweepNotFoundError: There is none; names those that come near.
        StorageError: The storage cannot be read.
    """
    reference = read_reference(name, storage)
    store = reference.store
    every = [night for night in nights_at(store) if night.run.kind == "sweep"]
    found = [night for night in every if night.run.run_id.rpartition("-")[0] == slug(reference.name)]
    if not found:
        known = list(dict.fromkeys(night.run.name for night in every))
        near = difflib.get_close_matches(reference.name, known, n=3, cutoff=0.4) or known[:5]
        fix = f"there are nights of {', '.join(near)}" if near else "check the storage path"
        raise SweepNotFoundError(reference.name, store.url, fix)
    shown = [(night, why_longer(night, found[place + 1 :])) for place, night in enumerate(found[:last])]
    if is_json:
        print_rows("nights", [_row(night, why) for night, why in shown], start)
        return DONE
    records, damaged = read_records(store, found[0].run.name)
    lines = [(each.champion, each.account) for each in records if each.champion is not None]
    lines.sort(key=lambda line: -line[0].at)
    facts = [("champion", _show(champion)) for champion, _ in lines]
    facts += [("champion", f"cannot be read: {error}") for error in damaged]
    facts += [("budget", show_budget(account, time.time())) for _, account in lines if account.per_year]
    _print(shown, facts, len(found), store.url)
    return DONE


def _print(
    shown: Sequence[tuple[Night, str]], champions: Sequence[tuple[str, str]], count: int, storage: str
) -> None:
    console, has_cost = make_console(), any(night.cost is not None for night, _ in shown)
    metric = shown[0][0].run.metric
    cost = ("cost>",) if has_cost else ()
    law = ("trained (predicted)",) if any(night.predicted for night, _ in shown) else ()
    short = ("night", "status", "trials>", f"best {metric}>", "champion>", "gate")
    short = (*short, *law, "hours>", *cost, "failed>")
    listing = Listing(short, ("why",))
    scores = show_column([night.run.score for night, _ in shown])
    champion_scores = show_column([_champion_score(night) for night, _ in shown])
    for (night, why), *numbers in zip(shown, scores, champion_scores, strict=True):
        listing.add(*_cells(night, why, numbers, has_cost=has_cost, has_law=bool(law)))
    listing.show(console)
    newest, longer = shown[0][0].run, shown[0][1]
    facts = [*champions]
    known = [each for night, _ in shown if (each := night.predicted) and each.is_inside is not None]
    if known:
        facts.append(("predictions", _how_good(known)))
    if count > len(shown):
        facts.append(("earlier", f"{count - len(shown)} more nights: --last {count}"))
    latest = f"{newest.run_id.rpartition('-')[0]}@latest"
    if longer:
        facts.append(("longer", command("trials", latest, storage, "--attempts")))
    facts.append(("next", command("status" if newest.score is None else "best", latest, storage)))
    print_facts(console, *facts)


def _show_predicted(found: Predicted | None) -> str:
    """`0.7525 (0.748 to 0.756)`: what the training had, and the interval that the law gave."""
    if found is None:
        return ""
    got = "none" if found.got is None else show_number(found.got)
    return f"{got} ({show_number(found.low)} to {show_number(found.high)})"


def _how_good(known: Sequence[Predicted]) -> str:
    inside = f"{sum(bool(each.is_inside) for each in known)} of {len(known)} inside their interval of 80 %"
    misses = [each.miss for each in known if each.miss is not None]
    return f"{inside}, off by {show_number(median(misses))} at the median"


def _predicted_row(found: Predicted | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {**found.model_dump(mode="json"), "is_inside": found.is_inside}


def _champion_score(night: Night) -> float | None:
    champion = night.gate.champion if night.gate is not None else None
    return champion.mean if champion is not None else None


def _cells(
    night: Night, why: str, numbers: Sequence[str], *, has_cost: bool, has_law: bool
) -> tuple[str, ...]:
    run = night.run
    total = "" if run.num_trials is None else f"/{run.num_trials}"
    return (
        run.key,
        night.status,
        f"{run.counts.ended}{total}",
        *numbers,
        show_gate(night),
        *([_show_predicted(night.predicted)] if has_law else []),
        "" if night.took_s is None else f"{night.took_s / 3600:.2f}",
        *([""] if has_cost and night.cost is None else [f"{night.cost:.2f}"] if has_cost else []),
        str(night.failures),
        _why(night, why),
    )


def _why(night: Night, why: str) -> str:
    """The facts of the night for a person: the verdict, then why it took longer."""
    verdict = night.gate.why if night.gate is not None else ""
    judged = f"model {night.judgement.why}" if night.judgement is not None else ""
    failed = next((part.cause for part in night.parts if part.status in ("failed", "damaged")), "")
    longer = f"took {why}" if why else ""
    return ". ".join(text for text in (failed, verdict, judged, longer) if text)


def _show(champion: Champion) -> str:
    since = f"of the night of {champion.key}" if champion.key else f"of {champion.sweep_id}"
    on = f" on {champion.data}" if champion.data else ""
    return f"{champion.metric} {show_number(champion.mean)}{on}, {since}"


def _budget_of(verdict: GateOutcome | None) -> dict[str, Any] | None:
    """The use of a budget of false promotions by the gate."""
    if verdict is None or verdict.budget is None:
        return None
    return verdict.budget.model_dump(mode="json")


def _row(night: Night, why: str) -> dict[str, Any]:
    run, verdict, training, judged = night.run, night.gate, night.training, night.judgement
    return {
        "key": run.key,
        "sweep_id": run.run_id,
        "status": night.status,
        "counts": run.counts,
        "num_trials": run.num_trials,
        "metric": run.metric,
        "best_score": run.score,
        "best_trial": run.trial_id,
        "champion_score": _champion_score(night),
        "promoted": night.promoted,
        "verdict": verdict.why if verdict is not None else "",
        "false_promotions": _budget_of(verdict),
        "judged": judged.verdict if judged is not None else "none",
        "judgement": judged.model_dump(mode="json") if judged is not None else None,
        "released": night.released,
        "training": None if training is None else {"run_id": training.run_id, "status": training.status},
        "predicted": _predicted_row(night.predicted),
        "started_at": run.started_at,
        "took_s": night.took_s,
        "cost": night.cost,
        "failed_trials": night.failures,
        "why_longer": why,
    }
