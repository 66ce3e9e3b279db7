"""The events of a line of champions, as its journal stores them: a JSON object each.

| event | says |
|---|---|
| `judged` | what a gate decided, what it knew, and the champion that it made, if it made one |
| `approved`, `rejected` | the decision about a candidate that waited |
| `model judged` | whether the candidate's model passed: then it is released, or waits for approval |
| `trained` | what a law predicted of a night's training, and what came |
| `rolled back` | which champion is champion again |
| `model` | where a champion's model is |
| `registered` | which release a registry has as its champion |

Each has its line, and the SHA-256 of the event before it: a byte that changes in any of them is noticed, also
where its checksum was made anew. What lies in the store is named relative to it. The chain is not signed: it
shows an edit to everyone who has a later event, or its mark.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from raysweep.documents.stored_paths import to_reference, to_uri
from raysweep.outcome import Decision
from raysweep.outcome.judgement import JudgedModel, Judgement
from raysweep.outcome.places import Change
from raysweep.outcome.predicted import Predicted
from raysweep.runs.across_runs.records import Champion, Facts, Line, Model, Night, Registered, Waiting
from raysweep.storage.formats import other_format

FORMAT_VERSION: Final = 8


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Judged(_Event):
    """The decision of a gate."""

    kind: Literal["judged"] = "judged"
    by: str = ""
    """The person or process that ran it."""
    night: Night
    champion: Champion | None = None
    """The new one; None: the champion stays, or a candidate waits for approval."""
    facts: dict[str, Any] | None = None
    """`Facts`, read where they are asked for."""


class Approved(_Event):
    """The decision about a candidate."""

    kind: Literal["approved", "rejected"]
    sweep_id: str
    gate: str = ""
    decision: Decision


class ModelJudged(_Event):
    """The model of a night's candidate was judged."""

    kind: Literal["model judged"] = "model judged"
    by: str = ""
    """The person or process that ran it."""
    sweep_id: str
    gate: str = ""
    judgement: Judgement
    waiting: Waiting | None = None
    """Of a model that passed, where approval is required before it is released."""


class Trained(_Event):
    """A night's training ended, of which a law had predicted the score."""

    kind: Literal["trained"] = "trained"
    by: str = ""
    """The caller that asked for it."""
    at: float
    sweep_id: str
    gate: str = ""
    run_id: str
    predicted: Predicted


class RolledBack(_Event):
    """An earlier champion is champion again."""

    kind: Literal["rolled back"] = "rolled back"
    champion: Champion
    """Without its checkpoint, where that was deleted."""
    at: float
    by: str = ""
    why: str = ""


class ModelMade(_Event):
    """A champion has a model."""

    kind: Literal["model"] = "model"
    release: str
    model: Model


class ModelRegistered(_Event):
    """A registry has a release as its champion."""

    kind: Literal["registered"] = "registered"
    registered: Registered


Event = Judged | Approved | ModelJudged | Trained | RolledBack | ModelMade | ModelRegistered
_EVENTS: Final[TypeAdapter[Event]] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """An event with its place in the journal. `digest`: of its bytes; `previous`: of the one before it."""

    number: int
    digest: str
    previous: str
    line: Line
    event: Event

    @property
    def stem(self) -> str:
        """`000012-<sha256>`."""
        return f"{self.number:06d}-{self.digest}"


class OtherFormatError(ValueError):
    """An event of another version."""


def encode_event(url: str, line: Line, event: Event, previous: str) -> bytes:
    """The event's record. `url`: the store's; `previous`: the digest of the record before it, or empty."""
    stored = _with_places(event, lambda uri: to_reference(url, uri))
    fields = {
        "format_version": FORMAT_VERSION,
        "line": {"name": line.name, "metric": line.metric, "mode": line.mode, "data": line.data},
        "previous": previous,
        "event": stored.model_dump(mode="json"),
    }
    return orjson.dumps(fields)


def decode_event(url: str, number: int, record: bytes) -> Stored:
    """The event that `encode_event` made. Raises OtherFormatError, ValueError: the problem."""
    fields: Any = orjson.loads(record)
    version = fields.get("format_version") if isinstance(fields, dict) else None
    if version != FORMAT_VERSION:
        raise OtherFormatError(other_format(version, FORMAT_VERSION, name="format_version"))
    try:
        event = _EVENTS.validate_python(fields["event"])
        line, previous = Line(**fields["line"]), str(fields["previous"])
    except (ValidationError, KeyError, TypeError) as error:
        text = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise ValueError(f"is damaged ({text})") from error
    return Stored(
        number=number,
        digest=hashlib.sha256(record).hexdigest(),
        previous=previous,
        line=line,
        event=_with_places(event, lambda reference: to_uri(url, reference)),
    )


def facts_of(event: Event) -> Facts | None:
    """The facts that a gate knew; of another event None. Raises: SpecError: They are damaged."""
    if not isinstance(event, Judged) or event.facts is None:
        return None
    return Facts.model_validate(event.facts)


def facts_fields(facts: Facts | None) -> dict[str, Any] | None:
    """For `Judged`."""
    return facts.model_dump(mode="json") if facts is not None else None


def _with_places(event: Event, change: Change) -> Event:
    """The event with each URI in it changed."""
    if isinstance(event, Judged):
        night = event.night
        update: dict[str, object] = {}
        if night.waiting is not None or night.to_judge is not None:
            to_judge = None if night.to_judge is None else _champion_with(night.to_judge, change)
            parts = {"waiting": _waiting_with(night.waiting, change), "to_judge": to_judge}
            update["night"] = night.model_copy(update=parts)
        if event.champion is not None:
            update["champion"] = _champion_with(event.champion, change)
        if event.facts is not None:
            update["facts"] = _facts_with(event.facts, change)
        return event.model_copy(update=update)
    if isinstance(event, ModelJudged):
        judgement = event.judgement
        models = {
            "model": _judged_with(judgement.model, change),
            "against": None if judgement.against is None else _judged_with(judgement.against, change),
        }
        judged = {"judgement": judgement.model_copy(update=models)}
        return event.model_copy(update={**judged, "waiting": _waiting_with(event.waiting, change)})
    if isinstance(event, RolledBack):
        return event.model_copy(update={"champion": _champion_with(event.champion, change)})
    if isinstance(event, ModelMade):
        model = event.model.model_copy(update={"source": change(event.model.source)})
        return event.model_copy(update={"model": model})
    return event


def _waiting_with(waiting: Waiting | None, change: Change) -> Waiting | None:
    if waiting is None:
        return None
    return waiting.model_copy(update={"proposed": _champion_with(waiting.proposed, change)})


def _judged_with(model: JudgedModel, change: Change) -> JudgedModel:
    return model.model_copy(update={"uri": change(model.uri)}) if model.uri else model


def _champion_with(champion: Champion, change: Change) -> Champion:
    uri = champion.checkpoint_uri
    place = None if uri is None else change(uri)
    return champion.model_copy(update={"checkpoint_uri": place, "replaced": None})


def _facts_with(facts: dict[str, Any], change: Change) -> dict[str, Any]:
    """The verdict's configs are the only places in them."""
    verdict = dict(facts["verdict"])
    verdict["candidates"] = [_confirmed_with(each, change) for each in verdict.get("candidates", ())]
    if verdict.get("champion") is not None:
        verdict["champion"] = _confirmed_with(verdict["champion"], change)
    return {**facts, "verdict": verdict}


def _confirmed_with(confirmed: dict[str, Any], change: Change) -> dict[str, Any]:
    uri = confirmed.get("checkpoint_uri")
    return confirmed if uri is None else {**confirmed, "checkpoint_uri": change(uri)}
