"""The parts of a callback, and the options of those that raysweep has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import ClassVar

from raysweep.documents.base import SpecModel
from raysweep.documents.kinds import PluginOptions
from raysweep.errors import RaysweepError, SpecError
from raysweep.hooks.events import (
    CheckpointSaved,
    Notice,
    Promoted,
    Report,
    SweepEnd,
    SweepStart,
    TrialEnd,
    TrialStart,
)


class SinkDownError(RaysweepError):
    """The target of a callback does not answer: it is called again later, as long as the sweep runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackSetup:
    """The facts that a callback is made with, beside its options."""

    sweep_id: str
    name: str
    """The sweep's name."""
    uri: str
    """The sweep's folder."""
    metric: str
    mode: str
    tags: Mapping[str, str]
    begun_at: float
    """The begin of the sweep, in Unix seconds: tells it from one of the same id that was put aside."""
    is_resumed: bool = False
    """True if events were delivered before, perhaps some of them without a note of it."""
    delivered: str = ""
    """The id of the last event that was noted as delivered, for one that `gets_all`."""
    traceparent: str = ""
    """The span that the sweep's is below, as W3C's trace context has it; empty: there is none."""


class Callback:
    """The base of every callback: what a sweep's process calls as it runs. Its methods do nothing.

    A class is made from its options and a `CallbackSetup`. What a method raises is tried again.
    """

    def on_sweep_start(self, event: SweepStart) -> None:
        """The sweep begins."""

    def on_trial_start(self, event: TrialStart) -> None:
        """An attempt of a trial begins."""

    def on_report(self, event: Report) -> None:
        """A trial has reported."""

    def on_checkpoint(self, event: CheckpointSaved) -> None:
        """A checkpoint is stored."""

    def on_trial_end(self, event: TrialEnd) -> None:
        """A trial has ended for good."""

    def on_sweep_end(self, event: SweepEnd) -> None:
        """The sweep has ended; again if an ended sweep is continued."""

    def on_notice(self, event: Notice) -> None:
        """The sweep stalls, or its deadline is at risk."""

    def on_promoted(self, event: Promoted) -> None:
        """A gate has promoted a config; called by the gate's process where `hears_of_promotions` is set."""

    def flush(self) -> None:
        """A batch of events was given; they count as delivered after this."""

    def close(self) -> None:
        """It is not called any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSetup:
    """The sweep, as the environment variables of its trials name it."""

    sweep_id: str
    name: str
    """The sweep's name."""
    begun_at: float
    """The begin of the sweep, in Unix seconds."""
    traceparent: str = ""
    """The span that the sweep's is below; empty: there is none."""


class CallbackOptions(SpecModel):
    """Options of a callback of raysweep's own. An options class is imported with the spec: keep it light."""

    hears_of_promotions: ClassVar[bool] = False
    """True if it has `on_promoted`, which the process that runs a gate calls."""
    is_in_controller: ClassVar[bool] = False
    """True if the controller itself does what it asks for; then it gets no events."""
    is_traced: ClassVar[bool] = False
    """True if it makes a trace."""
    gets_all: ClassVar[bool] = False
    """True if each process gives it all events from the start: what it took before may be lost with a
    process, and it drops what is stored.
    """
    places: ClassVar[Mapping[str, str]] = {}
    """The fields that say where it sends or writes, and the variable that says the same: `raysweep deliver`
    goes by a stored one only where its user names that too."""
    secret_fields: ClassVar[tuple[str, ...]] = ()
    """The fields whose text is stored and shown with a mask."""

    def check(self, storage_path: str) -> None:
        """See, before a sweep starts, that it can be used in this process, with this storage.

        Raises: SpecError.
        """

    def make(self, setup: CallbackSetup) -> Callback:
        """The callback. Raises: SinkDownError, or any error: it is made again later."""
        raise NotImplementedError

    def in_trials(self, setup: TrialSetup) -> dict[str, str]:
        """Environment variables of the trials, for what they log themselves.

        `{trial}` is the trial's id, `{number}` its number with eight digits.
        """
        return {}

    @property
    def opener(self) -> str:
        """A function, `module:name`, that opens a trial's run before the trial begins; empty: none does.

        It gets these variables, the sweep's id, when it began, and the trial's id; it returns more variables.
        """
        return ""


class CallbackPluginOptions(PluginOptions):
    """Options of a class of the user's own, which checks them itself when it is imported."""


@contextmanager
def needs_package(kind: str, package: str, fix: str) -> Iterator[None]:
    """Name what is to be installed where the package is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise SpecError("callbacks", f"{kind} requires {package}, which is not installed", fix) from error


def check_package(kind: str, package: str, fix: str) -> None:
    """See that a package is there, without importing it. Raises: SpecError."""
    if find_spec(package) is None:
        raise SpecError("callbacks", f"{kind} requires {package}, which is not installed", fix)
