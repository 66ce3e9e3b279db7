"""The process beside the controller: reads the journal, and calls the callbacks on a thread each.

It gets a line of JSON on its standard input, and later perhaps `end`: the sweep has ended, deliver the
rest. Where the input closes without it, the controller is gone, and so is this process in a moment. It writes
a line of JSON to a pipe when it has done what it could.
"""

from __future__ import annotations

import base64
import logging
import os
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, Final

import orjson

from raysweep.delivery.cursor import Cursor, CursorFile
from raysweep.delivery.feed import START, Feed, Item, event_id
from raysweep.delivery.shared import SharedEvents
from raysweep.delivery.sink import Sink, SinkReport
from raysweep.delivery.trace import keep_traceparent
from raysweep.errors import JournalDamagedError, RaysweepError, StorageError
from raysweep.hooks.base import CallbackSetup
from raysweep.hooks.loading import make_callback, names_of
from raysweep.hooks.spec import CallbackSpec
from raysweep.runs.folder import SweepFolder
from raysweep.storage.objects.opening import open_store

NICE: Final = 19
POLL_S: Final = 0.25
MAX_POLL_S: Final = 2.0
CHUNK: Final = 1000
LEAVE_S: Final = 2.0
"""The time that a callback has to come to the end of its present call."""
log = logging.getLogger("raysweep")


class Delivery:
    """The callbacks of one sweep, from its journal's start to its end."""

    def __init__(self, folder: SweepFolder, callbacks: tuple[CallbackSpec, ...]) -> None:
        self._folder, self._callbacks = folder, callbacks
        self._events = SharedEvents()
        self.sinks: list[Sink] = []
        self.total: int | None = None
        """The number of events in all, once the sweep has ended."""
        self.problem = ""
        self.is_over = threading.Event()
        """Set if nothing more is read."""
        self.has_ended = threading.Event()

    def run(self) -> None:
        """Read until the sweep has ended, or something cannot be read. Blocks."""
        try:
            self._read()
        except (RaysweepError, OSError) as error:
            self.problem = str(error)
            log.warning("callbacks: not called any more: %s", error)
        finally:
            self._events.complete()
            self.is_over.set()

    def hurry(self) -> None:
        """The sweep has ended."""
        self.has_ended.set()
        for sink in list(self.sinks):
            sink.hurry()

    def wait(self, idle_s: float, most_s: float) -> None:
        """Wait until all is delivered: as long as some callback gets on within `idle_s`, `most_s` in all."""
        began = time.monotonic()
        while time.monotonic() - began < most_s:
            if self.is_over.is_set() and all(sink.is_done for sink in self.sinks):
                return
            newest = max((sink.moved_at for sink in self.sinks if not sink.is_done), default=began)
            if time.monotonic() - max(began, newest) > idle_s:
                return
            time.sleep(0.02)

    def reports(self) -> list[SinkReport]:
        """The report of each callback."""
        made = [sink.report(self.total) for sink in self.sinks]
        known = {report.name for report in made}
        rest = [name for name in names_of(self._callbacks) if name not in known]
        return made + [SinkReport(name=name, left=None, skipped=0, error=self.problem) for name in rest]

    def leave(self) -> None:
        """Stop the callbacks, which note how far they came."""
        until = time.monotonic() + LEAVE_S
        for sink in self.sinks:
            sink.leave(0.0)
        for sink in self.sinks:
            sink.leave(max(0.0, until - time.monotonic()))

    def _read(self) -> None:
        feed = Feed(self._folder)
        files = [CursorFile(self._folder, name) for name in names_of(self._callbacks)]
        noted = [file.read() for file in files]
        cursors = [_place(callback, cursor) for callback, cursor in zip(self._callbacks, noted, strict=True)]
        first = min((cursor or Cursor()).key for cursor in cursors)
        waiting: list[Item] = []
        pause_s = POLL_S
        while True:
            is_last = self.has_ended.is_set()
            read: list[Item] = []
            try:
                read = feed.read(CHUNK)
                waiting += [item for item in read if item.key > first]
                if waiting or (is_last and feed.has_ended):
                    behind = waiting[0].ordinal - 1 if waiting else feed.ordinal
                    self._start(feed, behind, files, cursors, noted)
                    self._events.add(waiting)
                    waiting = []
            except JournalDamagedError:
                raise
            except StorageError as error:
                log.info("callbacks: the journal is read later: %s", error)
            else:
                if is_last and feed.has_ended and len(read) < CHUNK:
                    self.total = feed.ordinal
                    return
            if len(read) < CHUNK:
                pause_s = POLL_S if read or is_last else min(1.5 * pause_s, MAX_POLL_S)
                self._pause(pause_s)

    def _pause(self, pause_s: float) -> None:
        if self.has_ended.is_set():
            time.sleep(POLL_S)
        else:
            self.has_ended.wait(pause_s)

    def _start(
        self,
        feed: Feed,
        ordinal: int,
        files: list[CursorFile],
        cursors: list[Cursor | None],
        noted: list[Cursor | None],
    ) -> None:
        """Start the callbacks behind the event of this ordinal, once. Raises: StorageError."""
        if self.sinks:
            return
        spec = feed.spec
        for file, cursor in zip(files, cursors, strict=True):
            if cursor is None:
                file.write(Cursor())
        sinks: list[Sink] = []
        traceparent = keep_traceparent(self._folder, self._callbacks)
        for name, callback, file, cursor, last in zip(
            names_of(self._callbacks), self._callbacks, files, cursors, noted, strict=True
        ):
            setup = CallbackSetup(
                sweep_id=self._folder.sweep_id,
                name=spec.name,
                uri=self._folder.uri,
                metric=spec.metric,
                mode=spec.mode,
                tags=spec.tags,
                begun_at=feed.begun_at,
                is_resumed=cursor is not None,
                delivered=event_id(last.key) if last is not None else "",
                traceparent=traceparent,
            )
            sinks.append(
                Sink(
                    name,
                    _maker(callback, setup),
                    file,
                    cursor or Cursor(),
                    lambda: Feed(self._folder),
                    self._events,
                    ordinal,
                )
            )
        self.sinks = sinks
        for sink in sinks:
            if self.has_ended.is_set():
                sink.hurry()
            sink.start()


def _place(callback: CallbackSpec, noted: Cursor | None) -> Cursor | None:
    """The place from which a callback continues; None: it begins."""
    if noted is not None and getattr(callback.options, "gets_all", False):
        return replace(noted, key=START)
    return noted


def _maker(callback: CallbackSpec, setup: CallbackSetup) -> Any:
    """Makes the callback; again after a failure, when it resumes."""
    state = {"setup": setup}

    def make() -> Any:
        made = make_callback(callback, state["setup"])
        state["setup"] = _resumed(setup)
        return made

    return make


def _resumed(setup: CallbackSetup) -> CallbackSetup:
    return replace(setup, is_resumed=True)


def main() -> None:
    """See the module. Arguments: the number of the pipe's file descriptor."""
    logging.basicConfig(level=logging.WARNING, format="raysweep: %(message)s", stream=sys.stderr)
    os.nice(NICE)
    pipe = int(sys.argv[1])
    request = orjson.loads(sys.stdin.buffer.readline())
    sys.path[:] = request["path"]
    folder = SweepFolder(open_store(request["storage"]), request["sweep_id"])
    delivery = Delivery(folder, tuple(_read_callback(each) for each in request["callbacks"]))
    reading = threading.Thread(target=delivery.run, name="callbacks", daemon=True)
    reading.start()
    if sys.stdin.buffer.readline().strip() == b"end":
        with suppress(OSError):  # not allowed to everyone
            os.setpriority(os.PRIO_PROCESS, 0, 0)
        delivery.hurry()
        delivery.wait(request["idle_s"], request["most_s"])
        delivery.leave()
        reports = [asdict(report) for report in delivery.reports()]
        os.write(pipe, orjson.dumps({"reports": reports}) + b"\n")
    else:
        delivery.leave()
    sys.stdout.flush()
    # A callback may hang in a call: nothing waits for its thread.
    os._exit(0)


def _read_callback(fields: dict[str, Any]) -> CallbackSpec:
    if fields["object"]:
        # From the controller's own pipe, not from a storage.
        import cloudpickle

        return CallbackSpec.of(cloudpickle.loads(base64.b64decode(fields["object"])))
    return CallbackSpec.of({fields["kind"]: fields["options"]})
