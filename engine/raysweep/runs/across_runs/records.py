"""A line of champions as it is known: champion, nights, models, and the evidence of each decision.

Nothing of this is stored. `folds.py` makes it of the events of the line's journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from raysweep.documents.digest import digest_of
from raysweep.documents.json_numbers import Number
from raysweep.outcome import Decision, GateOutcome, Record, Undone, Usage
from raysweep.outcome.false_promotions import Account, BudgetUse
from raysweep.outcome.judgement import Judgement
from raysweep.outcome.predicted import Predicted
from raysweep.specs.approval import ApprovalSpec
from raysweep.specs.carried import CarriedConfig
from raysweep.specs.identity import file_name

FOLDER: Final = "champions"
DECIDED: Final = "decided"
Kind = Literal["gate", "approval", "judgement", "training", "rollback"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of champions that can be compared: those of one name, metric, mode and data set."""

    name: str
    metric: str
    mode: str
    data: str = ""
    """The data set that scores are measured on, as the gate names it."""

    @property
    def key(self) -> str:
        """The folder of its journal in the store."""
        return f"{FOLDER}/{self.path}"

    @property
    def decided(self) -> str:
        """The folder of the marks of its events in the store."""
        return f"{DECIDED}/{self.path}"

    @property
    def path(self) -> str:
        """Its place below these folders: `flights/auc.max`."""
        parts = [file_name(self.metric), self.mode, *([file_name(self.data)] if self.data else [])]
        return f"{file_name(self.name)}/{'.'.join(parts)}"

    def __str__(self) -> str:
        on = f" on {self.data}" if self.data else ""
        return f"{self.metric} ({self.mode}){on}"


def release_id(line: Line, sweep_id: str, at: float) -> str:
    """The id of a champion: of its line, its sweep, and the moment in which it became champion."""
    return digest_of([line.key, sweep_id, at])[:16]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Champion(_Model):
    """The best config so far."""

    name: str
    metric: str
    mode: str
    data: str = ""
    """The data set that its scores were measured on, as its gate names it."""
    config: dict[str, Any]
    mean: float
    spread: float
    """The standard deviation over the seeds."""
    n: int
    """The number of seeds."""
    metrics: dict[str, Any] = {}
    sweep_id: str
    """The sweep that found it."""
    key: str = ""
    trial_id: str = ""
    """The trial of that sweep."""
    checkpoint_uri: str | None = None
    """In the journal relative to the store, if it lies there."""
    at: float
    """The time at which it became champion; a rollback to it does not change that."""
    code_digest: str = ""
    """Of the trainable's own code, as it ran in that sweep."""
    spec_digest: str = ""
    """Of that sweep's spec."""
    replaced: Champion | None = None
    """The champion before it, of another sweep."""

    @property
    def line(self) -> Line:
        """With which others it can be compared."""
        return Line(name=self.name, metric=self.metric, mode=self.mode, data=self.data)

    @property
    def identity(self) -> tuple[str, float]:
        """Its sweep, and when it became champion."""
        return self.sweep_id, self.at


def identity_of(champion: Champion | None) -> tuple[str, float] | None:
    """The identity of a champion; None for none."""
    return champion.identity if champion is not None else None


class Waiting(_Model):
    """A candidate that passed its gate, until it is approved or rejected."""

    proposed: Champion
    against_sweep: str = ""
    """The sweep of the champion that it was compared with; empty for none."""
    against_at: float | None = None
    """The time at which that became champion."""
    until: float
    """The time at which silence decides, in UTC seconds."""
    on_silence: Literal["reject", "promote"]


class Night(_Model):
    """One night's gate. Times are UTC seconds."""

    sweep_id: str
    key: str = ""
    gate: str = ""
    """The id of this gate among those of the sweep."""
    at: float
    promoted: bool
    mean: float | None = None
    """Of the night's best candidate."""
    why: str = ""
    budget: BudgetUse | None = None
    """The use of a budget of false promotions by its gate: the account is made of these."""
    waiting: Waiting | None = None
    """Of a night whose candidate passed, where approval is required."""
    decision: Decision | None = None
    """The decision about that candidate; in the journal an event of its own."""
    to_judge: Champion | None = None
    """The candidate, where it is champion only once its model has passed a judgement."""
    to_approve: ApprovalSpec | None = None
    """The approval that this model needs then before it is released; None: none."""
    judgement: Judgement | None = None
    """The newest judgement of that model; in the journal an event of its own."""
    has_released: bool = False
    """True if that model was released."""
    trained: str = ""
    """The newest training of which a law predicted the score; in the journal an event of its own."""
    predicted: Predicted | None = None
    """That score, beside the one that came."""

    @property
    def is_waiting(self) -> bool:
        """True if its candidate waits for approval."""
        return self.waiting is not None and self.decision is None


class Model(Record):
    """A champion's model."""

    source: str
    """Its URI; in the journal relative to the store, if it lies there."""
    run_id: str = ""
    """The training; empty where it is a trial's checkpoint."""
    carried: CarriedConfig | None = Field(default=None, exclude_if=lambda given: given is None)
    """The way the config came from that of the champion's trial; None: it was trained as it was."""
    predicted: Predicted | None = Field(default=None, exclude_if=lambda given: given is None)
    """The score that a law predicted of the training, beside the one that came."""
    digest: str = ""
    """Of its files as they were judged; empty where it was not."""


class Registered(Record):
    """The release that a registry has as its champion."""

    release: str = ""
    version: str = ""
    """The registry's name for it."""
    registry_digest: str = ""
    """Of the registry that has it so: another one does not have it yet."""


class Drift(Record):
    """The change of the champion's score since the night in which it became champion."""

    then: Number
    """Its mean in that night."""
    now: Number
    """Its mean tonight, beside the candidates."""
    since: float
    """The time at which it became champion, in UTC seconds."""

    @property
    def change(self) -> float:
        """Now less then."""
        return self.now - self.then


class Facts(Record):
    """The facts that a gate knew when it decided."""

    verdict: GateOutcome
    """Candidates and champion with the score of every seed, the test, its interval."""
    drift: Drift | None = None
    """None without a champion, or where it did not run."""
    constraints: tuple[str, ...] = ()
    usage: dict[str, Usage] = Field(default_factory=dict)
    """The use of `sweep` and `gate`."""
    code_digest: str = ""
    """Of the trainable's own code, as it ran in the sweep; empty where that is not known."""
    gate_code_digest: str = ""
    """As it ran in the gate."""
    spec_digest: str = ""
    """Of the sweep's spec."""
    versions: dict[str, str] = Field(default_factory=dict)
    """`sweep` and `gate`: the raysweep that ran them; `raysweep`, `python`, `ray`: those of the process that
    decided."""


class Evidence(Record):
    """One decision about a line of champions. Times are UTC seconds."""

    number: int
    """Counts from 1."""
    kind: Kind
    entry: str
    """Its event in the journal: `000012-<sha256>`."""
    previous: str = ""
    """That of the decision before it; empty for the first."""
    at: float
    by: str = ""
    """The person that decided: `ann@host`; of a gate, the one that ran it."""
    why: str = ""
    name: str
    metric: str
    mode: str
    data: str = ""
    """The data set, as the gate names it."""
    sweep_id: str = ""
    """The night that was decided on; of a rollback, the one whose champion is champion again."""
    key: str = ""
    gate: str = ""
    promoted: bool
    """True if there is another champion after it."""
    before: Champion | None = None
    """The champion before it."""
    after: Champion | None = None
    """The champion from then on."""
    facts: Facts | None = None
    """Of a gate."""
    decision: Decision | None = None
    """Of an approval."""
    judgement: Judgement | None = None
    """Of a judgement."""
    predicted: Predicted | None = Field(default=None, exclude_if=lambda given: given is None)
    """Of a training."""


@dataclass(frozen=True, kw_only=True)
class ChampionRecord:
    """The state of a line after some events of its journal."""

    line: Line | None = None
    """None before the first event."""
    stack: tuple[Champion, ...] = ()
    """The champions, each on the one that it replaced: the last one is champion, a rollback goes back."""
    is_rolled_back: bool = False
    """True if it was a rollback that changed the champion last."""
    known: Mapping[tuple[str, float], Champion] = field(default_factory=lambda: MappingProxyType({}))
    """All that ever were champion, by `identity`."""
    history: tuple[Night, ...] = ()
    """All nights; the one that was decided on last is the last."""
    undone: Mapping[str, Undone] = field(default_factory=lambda: MappingProxyType({}))
    """By sweep, the rollback that took its champion away; not once that is champion again."""
    models: Mapping[str, Model] = field(default_factory=lambda: MappingProxyType({}))
    """By the id of the champion's release."""
    account: Account = field(default_factory=Account)
    """Of false promotions, after the newest night."""
    registered: Registered | None = None
    """The state to which a registry was brought last; None: nothing yet."""

    @property
    def champion(self) -> Champion | None:
        """The champion, with the one before it."""
        if not self.stack:
            return None
        before = self.stack[-2] if len(self.stack) > 1 else None
        return self.stack[-1].model_copy(update={"replaced": before})

    def account_at(self, at: float, per_year: float, sweep_id: str) -> Account:
        """The account of false promotions, opened for a gate of this sweep at this time."""
        return self.account.opened(at, per_year, identity_of(self.champion_beside(sweep_id)))

    @property
    def proposed(self) -> tuple[Champion, ...]:
        """The candidates that wait for approval, or for the judgement of their model."""
        waiting = [each.waiting.proposed for each in self.history if each.is_waiting and each.waiting]
        unjudged = [each.to_judge for each in self.history if each.to_judge and each.judgement is None]
        return (*waiting, *unjudged[-1:])  # an older one may never be trained

    @property
    def released(self) -> Model | None:
        """The model of the champion; None where none is known."""
        return self.model_of(self.champion) if self.champion is not None else None

    def model_of(self, champion: Champion) -> Model | None:
        """The model of one that is or was champion."""
        return self.models.get(release_id(champion.line, champion.sweep_id, champion.at))

    def night(self, sweep_id: str, gate: str = "") -> Night | None:
        """The decision of a sweep's gate."""
        nights = (
            night for night in reversed(self.history) if (night.sweep_id, night.gate) == (sweep_id, gate)
        )
        return next(nights, None)

    def champion_beside(self, sweep_id: str) -> Champion | None:
        """The champion that a sweep has to beat: of another sweep than itself."""
        champion = self.champion
        return champion if champion is None or champion.sweep_id != sweep_id else champion.replaced
