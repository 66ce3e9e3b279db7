"""`tensorboard`: a folder of event files for each trial, with its scalars and hyperparameters.

Each process writes files of its own. After a resume, what the files of a trial hold already is read before
more is written, so that nothing is there twice. A file that was cut short is read up to the cut.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field, JsonValue

from raysweep.errors import SpecError
from raysweep.hooks.base import Callback, CallbackOptions, CallbackSetup, needs_package
from raysweep.hooks.events import Report, TrialEnd
from raysweep.hooks.numbers import flat, numbers_of

FOLDER: Final = "tensorboard"
_FIX: Final = "pip install tensorboardX, or raysweep[ray]"
_ENDED: Final = "_hparams_/session_end_info"
Key = tuple[str, int, float]
"""Tag, step and wall time of a scalar."""


class TensorBoardOptions(CallbackOptions):
    """Event files for TensorBoard, by tensorboardX."""

    places: ClassVar[Mapping[str, str]] = {"logdir": ""}

    logdir: Annotated[str, Field(min_length=1)] | None = None
    """A folder on the machine that runs the sweep; each sweep has a folder of its id in it. Default:
    `tensorboard/` in the sweep's own folder.
    """

    def check(self, storage_path: str) -> None:
        """See that the package is there, and a folder. Raises: SpecError."""
        with needs_package("tensorboard", "tensorboardX", _FIX):
            import tensorboardX  # noqa: F401  that it can be imported
        path = self.logdir or storage_path
        if "://" in path and not path.startswith("file://"):
            where = "logdir" if self.logdir else "storage_path"
            raise SpecError(
                "callbacks.tensorboard.logdir",
                f"{where} {path!r} is not a local folder",
                "write logdir: /path/to/runs, a folder on the machine that runs the sweep",
            )

    def make(self, setup: CallbackSetup) -> TensorBoard:
        """The callback."""
        if self.logdir is not None:
            folder = Path(_local(self.logdir)).expanduser() / setup.sweep_id
        else:
            folder = Path(_local(setup.uri)) / FOLDER
        return TensorBoard(folder, is_resumed=setup.is_resumed)


class TensorBoard(Callback):
    """Buffers what trials report, and writes it in `flush`, one file of a trial after the other."""

    def __init__(self, folder: Path, *, is_resumed: bool) -> None:
        from tensorboardX.proto import event_pb2, summary_pb2

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._folder = folder
        self._is_resumed = is_resumed
        self._waiting: dict[str, list[Any]] = {}
        self._files: dict[str, _File] = {}
        self._ended: set[str] = set()

    def on_report(self, event: Report) -> None:
        """A point of each number; reports that do not count are left out."""
        numbers = numbers_of(event.metrics)
        if event.counts and numbers:
            values = [self._summary.Value(tag=name, simple_value=value) for name, value in numbers.items()]
            self._add(event.trial_id, event.at, event.iteration, self._summary(value=values))

    def on_trial_end(self, event: TrialEnd) -> None:
        """Hyperparameters with the last values."""
        from tensorboardX.summary import hparams

        config = {name: _plain(value) for name, value in flat(event.config).items()}
        for summary in hparams(hparam_dict=config, metric_dict=numbers_of(event.metrics)):
            self._add(event.trial_id, event.at, 0, summary)
        self._ended.add(event.trial_id)

    def flush(self) -> None:
        """Write what waits."""
        for trial, events in self._waiting.items():
            file = self._files.get(trial)
            if file is None:
                known = _stored(self._folder / trial) if self._is_resumed else set()
                file = self._files[trial] = _File(self._folder / trial, known, self._event)
            file.write(events)
            if trial in self._ended:
                self._files.pop(trial).close()
        self._waiting.clear()
        self._ended.clear()

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _add(self, trial: str, at: float, step: int, summary: Any) -> None:
        event = self._event(wall_time=at, step=step, summary=summary)
        self._waiting.setdefault(trial, []).append(event)


class _File:
    """One event file of one trial."""

    def __init__(self, folder: Path, known: set[Key], event: Any) -> None:
        from tensorboardX.record_writer import RecordWriter

        folder.mkdir(parents=True, exist_ok=True)
        self._known = known
        name = f"events.out.tfevents.{time.time_ns() // 1000:016d}.{os.getpid()}"
        self._writer = RecordWriter(str(folder / name))
        self._writer.write(event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())

    def write(self, events: list[Any]) -> None:
        """Write those that are not there yet."""
        for event in events:
            if not self._known or any(key not in self._known for key in _keys(event)):
                self._writer.write(event.SerializeToString())
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def _stored(folder: Path) -> set[Key]:
    """The keys in the event files of a trial."""
    from tensorboardX.proto import event_pb2

    found: set[Key] = set()
    for path in sorted(folder.glob("events.out.tfevents.*")):
        for record in read_records(path.read_bytes()):
            found.update(_keys(event_pb2.Event.FromString(record)))
    return found


def _keys(event: Any) -> Iterator[Key]:
    for value in event.summary.value:
        yield value.tag, event.step, event.wall_time


def read_records(data: bytes) -> Iterator[bytes]:
    """The whole records of an event file: eight bytes of length, four of checksum, the record, four more."""
    position = 0
    while position + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, position)
        end = position + 12 + length
        if end + 4 > len(data):
            return
        yield data[position + 12 : end]
        position = end + 4


def _plain(value: JsonValue) -> JsonValue:
    """Hyperparameters are numbers, booleans and texts."""
    return value if isinstance(value, bool | int | float | str) else str(value)


def _local(path: str) -> str:
    return path.removeprefix("file://")
