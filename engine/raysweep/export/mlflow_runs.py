"""A stored sweep as runs on an MLflow server, by the callback that writes them while a sweep runs."""

from __future__ import annotations

import os
from collections.abc import Sequence

from raysweep.delivery.feed import Feed
from raysweep.documents.validation import Problem
from raysweep.errors import RaysweepError, SpecError
from raysweep.export.source import Advance, Exported, read_outcome
from raysweep.hooks.base import CallbackSetup, SinkDownError
from raysweep.hooks.events import HOOKS, Report
from raysweep.hooks.mlflow import VARIABLE, Mlflow, MlflowOptions, check_address
from raysweep.hooks.spec import CallbackSpec
from raysweep.runs.folder import SweepFolder

BATCH = 1000
"""Events between two flushes."""


def export_mlflow(folder: SweepFolder, tracking_uri: str | None, advance: Advance) -> Exported:
    """Write the events of a sweep as runs. What the server has of it already is not written again.

    Args:
        folder: The sweep, ended or not: exported again, it gets what is new.
        tracking_uri: The server; None: the variable MLFLOW_TRACKING_URI.
        advance: Told how far it is, in events.

    Raises:
        SpecError: There is no address, or it is none.
        RaysweepError: The server does not answer, or refuses something; the next export continues there.
        SweepNotFoundError, StorageError, JournalDamagedError: The sweep cannot be read.
    """
    outcome = read_outcome(folder)
    feed = Feed(folder)
    items = feed.read(BATCH)
    options = _options(feed.spec.callbacks, tracking_uri)
    options.check(folder.store.url)
    setup = CallbackSetup(
        sweep_id=folder.sweep_id,
        name=feed.spec.name,
        uri=folder.uri,
        metric=feed.spec.metric,
        mode=feed.spec.mode,
        tags=feed.spec.tags,
        begun_at=feed.begun_at,
        is_resumed=True,
    )
    # Each report is an event, and each trial has about three more.
    reports, total = 0, sum(trial.reports + trial.overrun_reports + 3 for trial in outcome.trials)
    callback: Mlflow | None = None
    try:
        callback = options.make(setup)
        while items:
            for item in items:
                reports += isinstance(item.event, Report) and item.event.counts
                if hook := getattr(callback, HOOKS[type(item.event)], None):
                    hook(item.event)
            callback.flush()
            advance("exporting events", feed.ordinal, max(total, feed.ordinal))
            items = feed.read(BATCH)
    except (SinkDownError, ValueError) as error:
        raise RaysweepError(f"{error}; export it again: it continues where it was") from error
    finally:
        if callback is not None:
            callback.close()
    return Exported(
        sweep_id=folder.sweep_id,
        to="mlflow",
        places=(options.address,),
        trials=len(outcome.trials),
        reports=reports,
        has_ended=outcome.has_ended,
    )


def _options(callbacks: Sequence[CallbackSpec], tracking_uri: str | None) -> MlflowOptions:
    """Those of the sweep's own callback, so that its runs are found; with this address, if there is one."""
    own = next((each.options for each in callbacks if isinstance(each.options, MlflowOptions)), None)
    given = {} if own is None else own.model_dump(mode="json")
    if tracking_uri is not None:
        try:
            given["tracking_uri"] = check_address(tracking_uri)
        except Problem as problem:
            raise SpecError("--out", problem.issues[0].problem, problem.issues[0].fix) from None
    options = MlflowOptions.model_validate(given)
    if options.tracking_uri is None and not os.environ.get(VARIABLE, "").strip():
        fix = f"write --out http://host:5000, or set {VARIABLE}"
        raise SpecError("--out", f"names no MLflow server, and {VARIABLE} is not set", fix)
    return options
