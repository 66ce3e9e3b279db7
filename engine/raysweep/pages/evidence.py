"""The evidence of a line of champions as a page of Markdown."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from raysweep.documents.quoting import markdown, paragraph
from raysweep.numeric.shown import show_number
from raysweep.outcome import Confirmed, GateOutcome
from raysweep.outcome.false_promotions import Account, BudgetUse
from raysweep.outcome.judgement import Judgement
from raysweep.outcome.predicted import Predicted
from raysweep.outcome.showing.formatting import show_config
from raysweep.runs.across_runs.champions import Champion, Line
from raysweep.runs.across_runs.evidence import Chain, Evidence, Facts
from raysweep.runs.across_runs.records import release_id

_SHOWN = 30
"""The number of entries that the history lists."""


def evidence_page(line: Line, chain: Chain, entries: Sequence[Evidence]) -> str:
    """The page: whether the chain is unbroken, the champion, these entries in full, and the history.

    Args:
        line: Which champions.
        chain: Their evidence.
        entries: What is shown in full.
    """
    return "\n".join(
        [*_head(line, chain), *(each for entry in entries for each in _entry(entry)), *_history(chain)]
    )


def _head(line: Line, chain: Chain) -> Iterator[str]:
    yield f"# Evidence: {markdown(line.name)}, {markdown(str(line))}"
    yield ""
    if chain.flaws:
        yield f"**The evidence is damaged**: {len(chain.flaws)} of its parts are not as they were written."
        yield ""
        yield from (f"- {markdown(flaw.object)} {markdown(flaw.problem)}" for flaw in chain.flaws)
    else:
        count = len(chain.entries)
        yield "1 entry, as it was written." if count == 1 else f"{count} entries, each as it was written."
    yield ""
    champion = chain.record.champion
    yield "There is no champion." if champion is None else f"The champion is {markdown(_champion(champion))}."
    yield ""
    model = chain.record.models.get(release_id(line, *champion.identity)) if champion is not None else None
    if model is not None and model.carried is not None:
        yield f"Its config was carried {markdown(model.carried.line)}."
        yield ""
    if model is not None and model.predicted is not None:
        yield f"Its model has {markdown(str(model.predicted))}."
        yield ""
    if chain.record.account.per_year:
        budget = show_budget(chain.record.account, chain.record.account.at)
        yield f"The budget: {paragraph(budget)}."
        yield ""


def show_budget(account: Account, at: float) -> str:
    """`0.12 of 2 false promotions a year are spent; a gain of 0.012 in the next gate promotes …`.

    Args:
        account: Of a line of champions.
        at: When, in UTC seconds.
    """
    account = account.opened(at, account.per_year, account.against)
    spent = (
        f"{_number(round(account.spent, 3))} of {_number(account.per_year)} false promotions a year are spent"
    )
    challenger = account.challenger
    if challenger is None:
        return f"{spent}; there is no challenger: a new config is promoted after two gates at the earliest"
    night = f"night of {challenger.key}" if challenger.key else challenger.sweep_id
    who = f"the challenger, {show_config(challenger.config)} ({night}),"
    gain = account.needed_gain()
    if gain is None:
        return f"{spent}; {who} takes more than one gate"
    return f"{spent}; a gain of {_number(float(f'{gain:.2g}'))} in the next gate promotes {who.rstrip(',')}"


def _entry(entry: Evidence) -> Iterator[str]:
    yield f"## {markdown(_title(entry))}"
    yield ""
    if entry.why:
        yield f"{paragraph(_why(entry))}."
        yield ""
    if entry.facts is not None:
        yield from _scores(entry.facts.verdict)
    if entry.judgement is not None:
        yield from _figures(entry.judgement)
    yield "| | |"
    yield "|---|---|"
    for name, value in _rows(entry):
        yield f"| {name} | {markdown(value)} |"
    yield ""


def _why(entry: Evidence) -> str:
    verdict = entry.facts.verdict if entry.facts is not None else None
    # What waits for approval is not promoted yet, though it passed.
    is_waiting = verdict is not None and verdict.approval is not None
    return verdict.finding if verdict is not None and is_waiting and not entry.promoted else entry.why


def _title(entry: Evidence) -> str:
    return f"{f'Night {entry.key}' if entry.key else entry.sweep_id}: {_what(entry)}"


def _what(entry: Evidence) -> str:
    if entry.kind == "rollback":
        return "champion again by a rollback"
    if entry.predicted is not None:
        return _trained(entry.predicted)
    if entry.judgement is not None:
        waits = ", waits for approval" if entry.judgement.is_passed else ""
        return "model released" if entry.promoted else f"model {entry.judgement.verdict}{waits}"
    if entry.decision is not None:
        return "approved" if entry.decision.approved else "rejected"
    if entry.facts is not None and entry.facts.verdict.approval is not None:
        return "passed the gate, waits for approval"
    return "promoted" if entry.promoted else "not promoted"


def _trained(predicted: Predicted) -> str:
    if predicted.is_inside is None:
        return "trained"
    return f"trained, {'as' if predicted.is_inside else 'not as'} predicted"


def _scores(verdict: GateOutcome) -> Iterator[str]:
    rows = [*((f"trial {each.trial_id}", each) for each in verdict.candidates)]
    rows += [("champion", verdict.champion)] if verdict.champion is not None else []
    count = max((len(each.scores) for _, each in rows), default=0)
    yield "| | " + "".join(f"seed {number + 1} | " for number in range(count)) + "mean | spread | config |"
    yield "|---|" + "--:|" * (count + 2) + "---|"
    for name, each in rows:
        scores = [*each.scores, *[None] * (count - len(each.scores))]
        cells = [*(_number(score) for score in scores), _number(each.mean), _number(each.spread)]
        yield f"| {markdown(name)} | {' | '.join(cells)} | {markdown(_config(each))} |"
    yield ""


def _figures(judgement: Judgement) -> Iterator[str]:
    """Both models, over all data and slice by slice."""
    yield f"| {markdown(judgement.metric)} | new model | released model | better by |"
    yield "|---|--:|--:|--:|"
    whole = ("all", judgement.new, judgement.released, judgement.improvement)
    slices = ((each.name, each.new, each.released, each.improvement) for each in judgement.slices)
    for name, *numbers in (whole, *slices):
        yield f"| {markdown(name)} | {' | '.join(map(_number, numbers))} |"
    yield ""


def _judged(judgement: Judgement) -> Iterator[tuple[str, str]]:
    pairs = f"{judgement.test or 'none'}; {judgement.pairs} pairs"
    chance = "" if judgement.p_value is None else f", by chance in {_number(100 * judgement.p_value)} %"
    yield "test", f"{pairs}{chance}"
    if judgement.lower_bound is not None:
        yield "improvement above", f"{_number(judgement.lower_bound)} with 90 % confidence"
    yield "model", f"{judgement.model.uri}, digest {judgement.model.digest or 'none'}"
    if judgement.against is not None:
        yield "released then", f"{judgement.against.uri}, digest {judgement.against.digest}"


def _rows(entry: Evidence) -> Iterator[tuple[str, str]]:
    yield "decided", f"{_time(entry.at)}{f' by {entry.by}' if entry.by else ''}"
    yield "champion before", _champion(entry.before) if entry.before is not None else "none"
    if entry.promoted and entry.after is not None:
        yield "champion after", _champion(entry.after)
    if entry.facts is not None:
        yield from _facts(entry.facts)
    if entry.judgement is not None:
        yield from _judged(entry.judgement)
    if entry.sweep_id:
        yield "sweep", entry.sweep_id
    if entry.gate:
        yield "gate", entry.gate
    yield "entry", str(entry.number)
    yield "entry before", entry.previous or "none"


def _facts(facts: Facts) -> Iterator[tuple[str, str]]:
    verdict, drift = facts.verdict, facts.drift
    yield "test", f"{verdict.test}; an improvement of {_number(verdict.min_improvement)} is required"
    if verdict.improvement is not None:
        seeds = f" over {verdict.common_seeds} seeds" if verdict.common_seeds else ""
        error = (
            "" if verdict.standard_error is None else f", standard error {_number(verdict.standard_error)}"
        )
        lower = (
            ""
            if verdict.lower_bound is None
            else f"; above {_number(verdict.lower_bound)} with 90 % confidence"
        )
        yield "improvement", f"{_number(verdict.improvement)}{seeds}{error}{lower}"
    if verdict.budget is not None:
        yield from _budget(verdict.budget)
    if drift is not None:
        since = f"{_number(drift.then)} when it became champion ({_time(drift.since)})"
        yield "drift of the champion", f"{drift.change:+.6g}: {since}, {_number(drift.now)} now"
    if facts.constraints:
        yield "constraints", ", ".join(facts.constraints)
    for name, usage in facts.usage.items():
        cost = f", cost {usage.cost:.2f}" if usage.cost else ""
        yield f"used by the {name}", f"{usage.cpu_hours:.2f} CPU hours, {usage.gpu_hours:.2f} GPU hours{cost}"
    if facts.code_digest:
        is_same = facts.gate_code_digest in ("", facts.code_digest)
        yield (
            "code",
            facts.code_digest if is_same else f"{facts.code_digest}, in the gate {facts.gate_code_digest}",
        )
    if facts.spec_digest:
        yield "spec", facts.spec_digest
    if facts.versions:
        yield "versions", ", ".join(f"{name} {version}" for name, version in facts.versions.items())
    yield from (("note", note) for note in verdict.notes)


def _budget(use: BudgetUse) -> Iterator[tuple[str, str]]:
    spent = f"{_number(use.spent)} of {_number(use.per_year)} a year are spent"
    yield "false promotions", spent
    if use.challenger is not None:
        level = f"level {_number(use.level)}, e-value {_number(use.e_value)}"
        yield "test of the challenger", f"{level}: {_number(use.level * use.e_value)}, 1 is required"


def _history(chain: Chain) -> Iterator[str]:
    yield "## History"
    yield ""
    yield "| entry | night | decided | by | what | champion after |"
    yield "|--:|---|---|---|---|---|"
    for entry in reversed(chain.entries[-_SHOWN:]):
        what = _what(entry)
        after = (
            ""
            if entry.after is None
            else f"{_number(entry.after.mean)} of {entry.after.key or entry.after.sweep_id}"
        )
        cells = (str(entry.number), entry.key or entry.sweep_id, _time(entry.at), entry.by, what, after)
        yield f"| {' | '.join(map(markdown, cells))} |"
    yield ""


def _champion(champion: Champion) -> str:
    night = f"the night of {champion.key}" if champion.key else champion.sweep_id
    return (
        f"{show_config(champion.config)}, {champion.metric} {_number(champion.mean)}"
        f" (spread {_number(champion.spread)}, {champion.n} seeds), of {night}"
    )


def _config(confirmed: Confirmed) -> str:
    return show_config(confirmed.config)


def _number(value: float | None) -> str:
    return "" if value is None else show_number(float(value))


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))
