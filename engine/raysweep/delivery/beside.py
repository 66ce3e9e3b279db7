"""The controller's side: starts the process that calls the callbacks, and waits for it at the sweep's end.

The process has no part in the sweep: where it dies, it is started again, a few times; where it cannot be
started, the sweep runs without its callbacks, and the outcome has a note.
"""

from __future__ import annotations

import base64
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import IO, Any, Final

import orjson

from raysweep.hooks.loading import names_of, pickled
from raysweep.hooks.spec import CallbackSpec
from raysweep.runs.folder import SweepFolder

IDLE_S: Final = 30.0
"""The longest time without progress of any callback after a sweep's end; then the rest is given up."""
MOST_S: Final = 120.0
"""The longest delivery after the end of a sweep."""
BEFORE_OUTCOME_S: Final = 2.0
"""The longest wait of a sweep's outcome for its callbacks; what takes longer is delivered after it."""
RESTARTS: Final = 5
_LEAVE_S: Final = 4.0
log = logging.getLogger("raysweep")


class Beside:
    """The process of one sweep's callbacks. Without callbacks there is none.

    `idle_s`, `most_s`: see `IDLE_S`, `MOST_S`. `address`: of the Ray that the sweep runs on, for callbacks
    that use Ray themselves.
    """

    def __init__(
        self,
        folder: SweepFolder,
        callbacks: tuple[CallbackSpec, ...],
        *,
        address: str = "",
        idle_s: float = IDLE_S,
        most_s: float = MOST_S,
    ) -> None:
        self._folder, self._address = folder, address
        self._callbacks = tuple(
            each for each in callbacks if not getattr(each.options, "is_in_controller", False)
        )
        self._idle_s, self._most_s = idle_s, most_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: int | None = None
        self._is_leaving = threading.Event()
        self._starts = 0
        self._problem = ""
        self._ends_by: float | None = None
        """Until when the process is waited for, by the monotonic clock; None: the sweep has not ended."""
        self._is_deaf = False
        """True if the process is gone, and says nothing more."""
        self._heard = b""

    def start(self) -> None:
        """Start the process, and a thread that starts it again where it dies."""
        if self._callbacks:
            self._spawn()
            threading.Thread(target=self._keep, name="raysweep-callbacks", daemon=True).start()

    def finish(self, within_s: float | None = None) -> tuple[str, ...] | None:
        """The sweep has ended, durably: wait until all is delivered, or given up.

        Returns the notes for the outcome: a line for each callback that did not get everything. None: it is
        not done `within_s`; call it again.
        """
        if not self._callbacks:
            return ()
        if self._ends_by is None:
            self._begin_end()
        answer = self._hear(within_s)
        if answer is None and within_s is not None and self._is_awaited():
            return None
        death = self._death() if answer is None else ""
        self.close()
        if answer is None:
            why = self._problem or f"the process that calls them {death or 'did not answer'}"
            return (f"callbacks ({self._names}): not all events were delivered: {why}",)
        return tuple(note for report in answer["reports"] if (note := self._note(report)))

    @property
    def note_until_done(self) -> str:
        """For an outcome that is stored before all is delivered."""
        fix = f"`raysweep deliver {self._folder.sweep_id}` delivers what is missing"
        return f"callbacks ({self._names}): events were still being delivered when the sweep ended; {fix}"

    @property
    def _names(self) -> str:
        return ", ".join(names_of(self._callbacks))

    def _begin_end(self) -> None:
        with self._lock:
            self._is_leaving.set()
            if self._process is None or self._process.poll() is not None:
                self._starts = 0
                self._spawn()
        self._ends_by = time.monotonic() + self._most_s + 10.0
        process = self._process
        self._is_deaf = process is None or process.stdin is None
        if process is not None and process.stdin is not None:
            try:
                process.stdin.write(b"end\n")
                process.stdin.flush()
            except OSError:
                self._is_deaf = True

    def _death(self) -> str:
        """The end of the process, if it ended by itself; empty where it has not."""
        process = self._process
        if process is None or not self._is_deaf:
            return ""
        with suppress(subprocess.TimeoutExpired):  # its pipe is closed: it is about to end
            return _ended(process.wait(_LEAVE_S))
        return ""

    def _is_awaited(self) -> bool:
        return not self._is_deaf and self._ends_by is not None and time.monotonic() < self._ends_by

    def close(self) -> None:
        """End the process; what it has not delivered, the next run of the sweep delivers."""
        self._is_leaving.set()
        process = self._process
        if process is not None:
            with suppress(OSError):
                assert process.stdin is not None
                process.stdin.close()
            try:
                process.wait(_LEAVE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._process = None
        if self._answers is not None:
            os.close(self._answers)
            self._answers = None

    def _note(self, report: dict[str, Any]) -> str:
        """The events that a callback did not get, in one line; empty: it got everything."""
        left, skipped, why = report["left"], report["skipped"], report["error"]
        parts = []
        if left is None or left:
            what = "not all events were" if left is None else f"{left} events were not"
            parts.append(
                f"{what} delivered in time; `raysweep deliver {self._folder.sweep_id}` delivers them"
            )
        if skipped:
            parts.append(f"{skipped} events were given up, because it failed on them")
        if not parts:
            return ""
        return f"callback {report['name']}: {', '.join(parts)}" + (f" (last: {why})" if why else "")

    def _spawn(self) -> None:
        self._starts += 1
        if self._answers is not None:
            os.close(self._answers)
        self._answers, writes = os.pipe()
        environment = dict(os.environ)
        if self._address:
            environment.setdefault("RAY_ADDRESS", self._address)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "raysweep.delivery", str(writes)],
                stdin=subprocess.PIPE,
                pass_fds=(writes,),
                env=environment,
                # Ctrl-C ends the sweep, and this process only then.
                start_new_session=True,
            )
            stdin: IO[bytes] | None = self._process.stdin
            assert stdin is not None
            stdin.write(orjson.dumps(self._request()) + b"\n")
            stdin.flush()
        except OSError as error:
            self._problem = f"the process that calls them could not be started: {error}"
            log.warning("callbacks: %s", self._problem)
        finally:
            os.close(writes)

    def _request(self) -> dict[str, Any]:
        return {
            "storage": self._folder.store.url,
            "sweep_id": self._folder.sweep_id,
            "path": sys.path,
            "idle_s": self._idle_s,
            "most_s": self._most_s,
            "callbacks": [
                {
                    "kind": each.kind,
                    "options": each.options.model_dump(mode="json"),
                    "object": base64.b64encode(pickled(each)).decode() if each.held is not None else "",
                }
                for each in self._callbacks
            ],
        }

    def _keep(self) -> None:
        while not self._is_leaving.is_set():
            process = self._process
            if process is None:
                return
            ended = _ended(process.wait())
            if self._is_leaving.wait(min(30.0, 2.0**self._starts)):
                return
            with self._lock:
                if self._is_leaving.is_set():
                    return
                if self._starts > RESTARTS:
                    self._problem = f"the process that calls them died {self._starts} times: it {ended}"
                    log.warning("callbacks: %s: it is started again at the end of the sweep", self._problem)
                    return
                log.warning("callbacks: the process that calls them %s; it is started again", ended)
                self._spawn()

    def _hear(self, within_s: float | None) -> dict[str, Any] | None:
        """The answer of the process once it has done what it could; None: nothing in time."""
        until = self._ends_by or 0.0
        if within_s is not None:
            until = min(until, time.monotonic() + within_s)
        while not self._is_deaf and self._answers is not None and not self._heard.endswith(b"\n"):
            left_s = until - time.monotonic()
            if left_s <= 0:
                return None
            ready, _, _ = select.select([self._answers], [], [], left_s)
            more = os.read(self._answers, 65536) if ready else None
            if more is not None:
                self._heard += more
                self._is_deaf = not more
        if not self._heard.endswith(b"\n"):
            return None
        answer: dict[str, Any] = orjson.loads(self._heard)
        return answer


def _ended(code: int) -> str:
    """The end of a process, by its exit code; below 0, the number of the signal that ended it."""
    if code >= 0:
        return f"ended with exit code {code}"
    names = {each.value: each.name for each in signal.Signals}
    return f"was ended by {names.get(-code, f'signal {-code}')}"
