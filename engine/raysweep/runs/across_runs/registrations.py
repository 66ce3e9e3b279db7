"""The models of a line's champions, and the one that the registry has as its champion.

The line's journal says who is champion, where its model is, and what the registry was brought to. `sync`
brings the registry to where these are: after a promotion, a rollback, or a night in which the registry did
not answer. A champion without a model waits for its training; the registry then keeps the one before it.

Which registry that is comes with each call, from the pipeline or an argument: the journal cannot name the
server that gets this user's credentials, or the class that runs here.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from raysweep.documents.digest import digest_of
from raysweep.errors import one_line
from raysweep.hooks.base import SinkDownError
from raysweep.hooks.model_registry import RegistrySpec, Release, make_registry
from raysweep.judge.model import why_changed
from raysweep.outcome import TrainOutcome
from raysweep.runs.across_runs.champions import read_champion
from raysweep.runs.across_runs.events import Event, ModelMade, ModelRegistered
from raysweep.runs.across_runs.line_journal import LineJournal, change_line
from raysweep.runs.across_runs.records import (
    Champion,
    ChampionRecord,
    Line,
    Model,
    Registered,
    release_id,
)
from raysweep.storage.objects.store import Store

UNNAMED: Final = "name the registry: --registry night.yaml, the pipeline's file"
GIVE_UP_AFTER_S: Final = 60.0
_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """The state of the registry."""

    version: str = ""
    """The version that is champion; empty while there is none."""
    pending: str = ""
    """The reason why the registry is not where it is to be; empty where it is."""

    def __str__(self) -> str:
        return f"registry pending: {self.pending}" if self.pending else f"registered: version {self.version}"


def add_model(
    store: Store,
    line: Line,
    champion: str,
    source: str,
    run_id: str = "",
    trained: TrainOutcome | None = None,
) -> None:
    """Write down where a champion's model is, before a registry hears of it.

    Args:
        store: Where the sweeps are.
        line: Which champions.
        champion: Its `release_id`.
        source: The model's URI.
        run_id: The training; empty: it is a trial's checkpoint.
        trained: How that ended, where it is known.

    Raises: StorageError.
    """
    model = Model(source=source, run_id=run_id)
    if trained is not None:
        more = {"run_id": trained.run_id, "carried": trained.carried, "predicted": trained.predicted}
        model = model.model_copy(update=more)
    made = ModelMade(release=champion, model=model)

    def add(_: LineJournal, record: ChampionRecord) -> Event | None:
        return None if record.models.get(champion) == made.model else made

    change_line(store, line, add)


def sync(
    store: Store, line: Line, registry: RegistrySpec | None, *, give_up_after_s: float = GIVE_UP_AFTER_S
) -> Synced | None:
    """Bring the registry to the champion that there is; None: no model of this line is registered.

    Asked again it does nothing that is done. A registry that does not answer is asked again for a while; then
    that is in `pending`, and the next call completes it.

    Args:
        store: Where the sweeps are.
        line: Which champions.
        registry: The registry; None: it is only said how it stands.
        give_up_after_s: How long it is asked.

    Raises: StorageError: The line cannot be read or written, is damaged, or is an older copy.
    """
    with ExitStack() as opened:
        return _sync(store, line, registry, time.monotonic() + give_up_after_s, opened)


def _sync(
    store: Store, line: Line, spec: RegistrySpec | None, until: float, opened: ExitStack
) -> Synced | None:
    wait_s, registry = _FIRST_WAIT_S, None
    digest = digest_of(spec.model_dump(mode="json")) if spec is not None else ""
    while True:
        record = read_champion(store, line)
        champion, done = record.champion, record.registered or Registered()
        if champion is None or not record.models:
            return None
        wanted = release_id(line, champion.sweep_id, champion.at)
        model = record.models.get(wanted)
        if model is None:
            night = champion.key or champion.sweep_id
            return Synced(version=done.version, pending=f"the champion, of {night}, has no model yet")
        if done.release == wanted and digest in ("", done.registry_digest):
            return Synced(version=done.version)
        if spec is None:
            return Synced(version=done.version, pending=UNNAMED)
        if changed := why_changed(model.source, model.digest):
            return Synced(version=done.version, pending=changed)
        try:
            if registry is None:
                registry = make_registry(spec)
                opened.callback(registry.close)
            version = str(registry.make_champion(_release(store, line, champion, wanted, model)))
        except SinkDownError as error:
            if time.monotonic() + wait_s > until:
                return Synced(version=done.version, pending=one_line(str(error), 200))
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
            continue
        except Exception as error:  # noqa: BLE001  whatever a user's class raises
            text = f"{type(error).__name__}: {error}"
            return Synced(version=done.version, pending=one_line(text, 200))
        # The champion may have changed meanwhile: the next round sees it.
        _tell(store, line, Registered(release=wanted, version=version, registry_digest=digest))


def _tell(store: Store, line: Line, registered: Registered) -> None:
    def tell(_: LineJournal, record: ChampionRecord) -> Event | None:
        return None if record.registered == registered else ModelRegistered(registered=registered)

    change_line(store, line, tell)


def _release(store: Store, line: Line, champion: Champion, wanted: str, model: Model) -> Release:
    return Release(
        id=wanted,
        name=line.name,
        metric=line.metric,
        mode=line.mode,
        data=line.data,
        source=model.source,
        run_id=model.run_id,
        sweep_id=champion.sweep_id,
        trial_id=champion.trial_id,
        key=champion.key,
        mean=champion.mean,
        config=champion.config,
        code_digest=champion.code_digest,
        spec_digest=champion.spec_digest,
    )
