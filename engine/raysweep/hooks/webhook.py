"""`webhook`: a message to an address when a sweep needs a person: generic JSON, Slack, or Teams.

The address is a secret: anyone who has it can post. It is in no message and no error, and is stored masked.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, model_validator

from raysweep.documents.report_link import report_place, report_url
from raysweep.documents.validation import Problem, show
from raysweep.errors import SpecError
from raysweep.hooks.base import Callback, CallbackOptions, CallbackSetup, SinkDownError
from raysweep.hooks.events import Event, Notice, Promoted, SweepEnd, TrialEnd

if TYPE_CHECKING:
    import httpx

Occasion = Literal["failed", "stalled", "deadline", "promoted", "ended"]
Format = Literal["generic", "slack", "teams"]
TIMEOUT_S: Final = 10.0
_HOSTS: Final[tuple[tuple[str, Format], ...]] = (
    ("hooks.slack.com", "slack"),
    ("webhook.office.com", "teams"),
    ("logic.azure.com", "teams"),
    ("api.powerplatform.com", "teams"),
)
_PASSING: Final = frozenset({408, 425, 429})


def _check_url(given: Any) -> Any:
    # The value is in no problem: it may be a secret.
    if not isinstance(given, str) or urlsplit(given).scheme not in ("http", "https"):
        raise Problem("is not a web address", "write https://…, or name a variable that has it: url_from")
    if not urlsplit(given).hostname:
        raise Problem("names no host", "write https://host/…")
    return given


def _check_on(given: Any) -> Any:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise Problem(f"expected a list, got {show(given)}", 'write ["failed", "deadline"]')
    return tuple(given)


class WebhookOptions(CallbackOptions):
    """A message to an address: JSON, or as Slack and Teams take it."""

    secret_fields: ClassVar[tuple[str, ...]] = ("url",)
    hears_of_promotions: ClassVar[bool] = True
    places: ClassVar[Mapping[str, str]] = {"url": ""}

    url: Annotated[str, BeforeValidator(_check_url)] | None = Field(default=None, repr=False)
    """The URL to post to. Stored masked; better is `url_from`."""
    url_from: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    """The environment variable, where the sweep runs, that has the address."""
    on: Annotated[tuple[Occasion, ...], BeforeValidator(_check_on)] = (
        "failed",
        "stalled",
        "deadline",
        "promoted",
    )
    """Occasions: `failed` (the first trial that fails for good, a failed sweep), `stalled` (nothing can run),
    `deadline` (at this pace it cuts the sweep), `promoted` (a gate promotes its best), `ended` (any end).
    """
    format: Format | None = None
    """`generic`, `slack` or `teams`; default: by the address."""

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.url is None) == (self.url_from is None):
            raise Problem("requires url or url_from, and not both", "write url_from: SLACK_WEBHOOK_URL")
        return self

    def check(self, storage_path: str) -> None:
        """See that the variable is there, and that the dashboard's is an address. Raises: SpecError."""
        self._address()
        report_url("")

    def make(self, setup: CallbackSetup) -> Webhook:
        """The callback."""
        import httpx

        return Webhook(self, self._address(), setup, httpx.Client(timeout=TIMEOUT_S))

    def _address(self) -> str:
        if self.url is not None:
            return self.url
        found = os.environ.get(self.url_from or "", "").strip()
        path = "callbacks.webhook.url_from"
        if not found:
            raise SpecError(
                path, f"the variable {self.url_from} is not set here", "set it where the sweep runs"
            )
        try:
            _check_url(found)
        except Problem as problem:
            raise SpecError(
                path, f"the variable {self.url_from} {problem.issues[0].problem}", "set it to https://…"
            ) from None
        return found


class Webhook(Callback):
    """Posts one message for each occasion."""

    def __init__(self, options: WebhookOptions, url: str, setup: CallbackSetup, client: httpx.Client) -> None:
        self._on, self._url, self._setup, self._client = frozenset(options.on), url, setup, client
        self._format = options.format or _format_of(url)
        self._host = urlsplit(url).hostname or ""
        self._report = _report(setup)

    def on_trial_end(self, event: TrialEnd) -> None:
        """The first trial that fails for good."""
        if "failed" in self._on and event.state == "failed" and event.failed == 1:
            self._post(
                "failed", event, f"trial {event.trial_id} failed: {event.error or 'no error is known'}"
            )

    def on_notice(self, event: Notice) -> None:
        """The sweep stalls, or its deadline is at risk."""
        if event.kind in self._on:
            self._post(event.kind, event, event.text)

    def on_sweep_end(self, event: SweepEnd) -> None:
        """The end."""
        is_failed = event.status == "failed"
        if "ended" in self._on or (is_failed and "failed" in self._on):
            self._post("failed" if is_failed else "ended", event, f"{event.status}: {event.why}")

    def on_promoted(self, event: Promoted) -> None:
        """A gate promotes the best config."""
        if "promoted" in self._on:
            self._post("promoted", event, event.why)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _post(self, kind: Occasion, event: Event, text: str) -> None:
        """Raises: SinkDownError: try again; ValueError: the receiver refuses the message."""
        body = _BODIES[self._format](self._setup, kind, event, text, self._report)
        try:
            answer = self._client.post(self._url, json=body, headers={"X-Raysweep-Event": event.id})
        except Exception as error:  # noqa: BLE001  the library's errors have no common base here
            # Not the error itself: it may have the address.
            raise SinkDownError(f"{self._host} does not answer: {type(error).__name__}") from None
        if answer.status_code in _PASSING or answer.status_code >= 500:
            raise SinkDownError(f"{self._host} answers {answer.status_code}")
        if not answer.is_success:
            raise ValueError(f"{self._host} answers {answer.status_code}: it refuses the message")


def _format_of(url: str) -> Format:
    host = urlsplit(url).hostname or ""
    return next((kind for ending, kind in _HOSTS if host == ending or host.endswith(f".{ending}")), "generic")


def _generic(setup: CallbackSetup, kind: Occasion, event: Event, text: str, report: str) -> dict[str, Any]:
    return {
        "id": event.id,
        "event": kind,
        "at": event.at,
        "sweep_id": setup.sweep_id,
        "name": setup.name,
        "uri": setup.uri,
        "report": report,
        "text": text,
    }


def _report(setup: CallbackSetup) -> str:
    """The address of the report, or the command that makes it."""
    return report_place(setup.sweep_id, setup.uri.rpartition("/")[0])


def _title(setup: CallbackSetup) -> str:
    return f"Sweep {setup.name} ({setup.sweep_id})"


def _slack(setup: CallbackSetup, kind: Occasion, event: Event, text: str, report: str) -> dict[str, Any]:
    whole = f"{_title(setup)}\n{text}\n{setup.uri}\nReport: {report}"
    # Slack's own three escapes; without them a name could be a link or ping a channel.
    return {"text": whole.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"), "mrkdwn": False}


def _teams(setup: CallbackSetup, kind: Occasion, event: Event, text: str, report: str) -> dict[str, Any]:
    title = {
        "type": "RichTextBlock",
        "inlines": [{"type": "TextRun", "text": _title(setup), "weight": "bolder"}],
    }
    lines = [
        {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": each}]}
        for each in (text, setup.uri, f"Report: {report}")
    ]
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [title, *lines],
    }
    if report.startswith("http"):
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Report", "url": report}]
    return {
        "type": "message",
        "attachments": [{"contentType": "application/vnd.microsoft.card.adaptive", "content": card}],
    }


_BODIES: Final = {"generic": _generic, "slack": _slack, "teams": _teams}
