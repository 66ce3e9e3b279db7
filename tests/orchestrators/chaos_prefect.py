"""Prefect's nights of the stress run that need an approval: who decides how, drawn by seed and night.

Two of three nights ask for one. As soon as the flow run is paused, after a pause of its own that is drawn
too, it is answered: by its form, by the same call that `raysweep approve` makes, by both with opposite
answers, or by no one. A form that a retry opens anew is answered the same way.

After the night `more_lies` compares the four that must tell one truth about the decision: what people said,
the champion's file, the evidence, and the task `approval` that the flow run shows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import httpx

from devtools.prefect.local import LocalPrefect
from raysweep.errors import RaysweepError
from raysweep.outcome import Decision
from raysweep.runs.across_runs.approvals import SILENCE, decide_night
from raysweep.runs.across_runs.champions import Night, read_champion
from raysweep.runs.across_runs.evidence import read_chain
from raysweep.storage.objects.opening import open_store
from tests.orchestrators.chaos_hands import PrefectHands
from tests.orchestrators.chaos_site import LINE, Site
from tests.orchestrators.nights import Night as Asked
from tests.orchestrators.prefect import ask_patiently

WAYS: Final = (
    "form yes",
    "form no",
    "command yes",
    "command no",
    "form yes, command no",
    "command yes, form no",
    "silence reject",
    "silence promote",
)
ASKED: Final = 2 / 3
"""The part of the nights that need an approval."""
SILENCE_S: Final = 8.0
PATIENCE_S: Final = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Approving:
    """How a night is decided."""

    way: str
    """Of `WAYS`; empty: the night needs no approval."""
    after_s: float = 0.0
    """How long people take once they are asked."""

    @property
    def parameters(self) -> dict[str, Any]:
        """The flow's parameter."""
        if not self.way:
            return {}
        if self.way.startswith("silence"):
            return {"approval": {"timeout": SILENCE_S, "on_silence": self.way.split()[1]}}
        return {"approval": {"timeout": PATIENCE_S}}

    @property
    def words(self) -> list[tuple[str, bool]]:
        """What people say, in order: where, and whether they approve."""
        if not self.way or self.way.startswith("silence"):
            return []
        return [(where, word == "yes") for where, word in map(str.split, self.way.split(", "))]

    def __str__(self) -> str:
        return f"approval: {self.way} after {self.after_s:g} s" if self.way else "no approval"


def draw(seed: int, night: int) -> Approving:
    """How a night is decided: each way comes once before any comes again."""
    rng = Random(f"prefect/{seed}/{night}/approval")
    order = list(WAYS)
    Random(f"prefect/{seed}/approvals").shuffle(order)
    asked = [each for each in range(night + 1) if Random(f"prefect/{seed}/{each}/asked").random() < ASKED]
    if not asked or asked[-1] != night:
        return Approving(way="")
    return Approving(way=order[(len(asked) - 1) % len(order)], after_s=rng.choice((0.0, 3.0, 8.0)))


@dataclass(slots=True)
class _Told:
    """A night that needs an approval, as it continues."""

    approving: Approving
    asked_at: float | None = None
    """Since when its flow run is paused."""
    said: list[tuple[str, bool]] = field(default_factory=list)
    """What people have said, and was taken, or may have been."""


class ApprovingPrefect(PrefectHands):
    """Prefect, with people who approve.

    Args:
        servers: The servers.
        site: Where the nights are stored; people reach it past the proxies.
        seed: Of the plan.
    """

    def __init__(self, servers: LocalPrefect, site: Site, seed: int) -> None:
        super().__init__(servers)
        self._site, self._seed = site, seed
        self._told: dict[str, _Told] = {}

    def parameters(self, night: Asked, key: str | None) -> dict[str, Any]:
        return super().parameters(night, key) | self._drawn(night).parameters

    def begin(self, night: Asked, key: str | None = None) -> str:
        run = super().begin(night, key)
        self._told[run] = _Told(approving=self._drawn(night))
        return run

    def begin_child(self, night: Asked) -> str:
        run = super().begin_child(night)
        self._told[run] = _Told(approving=self._drawn(night))
        return run

    def cancel(self, run: str) -> None:
        if self._flow_run(run)["state_type"] != "PAUSED":
            super().cancel(run)
            return
        # Prefect refuses Cancelling while a run is paused, and takes Cancelled from a person.
        self._patiently("POST", f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLED"}})

    def _drawn(self, night: Asked) -> Approving:
        return draw(self._seed, int(night.sweep["seed"]))

    def tend(self, run: str, *, is_wanted: bool) -> bool:
        told = self._told[run]
        if told.approving.words:
            self._answer(run, told)
        return super().tend(run, is_wanted=is_wanted)

    def _answer(self, run: str, told: _Told) -> None:
        if self._flow_run(run)["state_type"] != "PAUSED":
            told.asked_at = None
            return
        if told.asked_at is None:
            told.asked_at = time.monotonic()
        if time.monotonic() - told.asked_at < told.approving.after_s:
            return
        for where, approved in told.approving.words:
            is_taken = self._by_form(run, approved) if where == "form" else self._by_command(run, approved)
            if is_taken:
                told.said.append((where, approved))

    def _by_form(self, run: str, approved: bool) -> bool:
        given = {"run_input": {"approved": approved, "by": "form"}}
        path, may_be_stored = f"/flow_runs/{run}/resume", False
        with suppress(httpx.HTTPStatusError):
            try:
                answer = self.servers.ask("POST", path, given)
            except httpx.HTTPError as error:
                if isinstance(error, httpx.HTTPStatusError) and error.response.status_code < 500:
                    return False
                may_be_stored = True  # the server died, or gave up, and not before it had it, perhaps
                answer = ask_patiently(self.servers, "POST", path, given)
            return may_be_stored or bool(answer["status"] == "ACCEPT")
        return may_be_stored

    def _by_command(self, run: str, approved: bool) -> bool:
        night = self._night(run)
        if night is None or night.waiting is None:
            return False
        asked = Decision(approved=approved, by="command", at=time.time())
        done = decide_night(open_store(self._site.storage), LINE, night.sweep_id, night.gate, asked)
        return done is not None and done.is_new

    def _night(self, run: str) -> Night | None:
        """Of the champion's history: that of the run's own sweep."""
        notes = self.job_notes(run)
        sweeps = {note["job"]["run_id"] for note in notes}
        record = read_champion(open_store(self._site.storage), LINE)
        return next((each for each in reversed(record.history) if each.sweep_id in sweeps), None)

    # --- after the night

    def more_lies(self, run: str) -> list[str]:
        """The contradictions about the decision."""
        return [f"approval: {lie}" for lie in self._lies(run)]

    def _lies(self, run: str) -> Iterator[str]:
        told, night = self._told[run], self._night(run)
        if night is None:
            return  # it did not come to its gate
        chain = read_chain(open_store(self._site.storage), LINE)
        yield from (f"evidence {flaw.object} {flaw.problem}" for flaw in chain.flaws)
        ours = [each for each in chain.entries if (each.sweep_id, each.gate) == (night.sweep_id, night.gate)]
        decided = [each.decision for each in ours if each.kind == "approval"]
        if len(decided) > 1:
            yield f"{night.sweep_id} was decided {len(decided)} times in the evidence"
        if decided and decided[-1] != night.decision:
            yield f"the evidence says {decided[-1]}, the champion's file {night.decision}"
        shown = self._shown(run)
        if night.waiting is None:
            if decided or shown:
                yield f"nothing waited for approval, and there is one: {decided or shown}"
            if night.promoted and told.approving.way:
                yield f"{night.sweep_id} was promoted, and no person was asked"
            return
        if night.decision is None:
            if shown:
                yield f"the flow run shows {shown}, and there is no decision"
            return
        if not decided:
            yield f"the evidence has no decision, the champion's file {night.decision}"
        yield from lies_of_decision(told.approving, told.said, night.decision)
        if shown and shown != ("Approved" if night.decision.approved else "Rejected"):
            yield f"the flow run shows {shown}, the decision is {night.decision}"
        if night.promoted != night.decision.approved:
            yield f"promoted is {night.promoted}, the decision is {night.decision}"

    def _shown(self, run: str) -> str:
        """How the last of the flow run's tasks `approval` ended; empty: none has, or from the cache."""
        rows = self._tasks(run, "approval")  # type: ignore[arg-type]
        names = [row["state_name"] for row in rows if row["state_name"] in ("Approved", "Rejected")]
        return str(names[-1]) if names else ""

    def summary(self, run: str) -> str:
        """How the night was decided, in a line."""
        told, night = self._told[run], None
        with suppress(RaysweepError, httpx.HTTPError):
            night = self._night(run)
        decision = night.decision if night is not None else None
        return f"{told.approving}; {decision or 'not decided'}"


def lies_of_decision(
    approving: Approving, said: Sequence[tuple[str, bool]], decision: Decision
) -> Iterator[str]:
    """Whether it is what people said, or what silence means."""
    if decision.by == SILENCE:
        wanted = approving.way.endswith("promote")
        if not approving.way.startswith("silence"):
            yield f"silence decided, and people were to: {approving.way}"
        elif decision.approved != wanted:
            yield f"silence was to mean {wanted}, the decision is {decision}"
        return
    if decision.by == "raysweep":
        return  # another night changed the champion meanwhile
    if (decision.by, decision.approved) not in said:
        yield f"the decision is {decision}, people said {said}"
