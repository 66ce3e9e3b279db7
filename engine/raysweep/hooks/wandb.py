"""`wandb`: a run for each trial, grouped by sweep, by the package wandb.

wandb keeps what it was given in memory for a while, so that a process that dies takes some of it along. For
that reason this callback gets all events from the start in each process, and drops what is stored already:
the runs of ended trials are listed in a file of marks, and each row of the others has its number in the trial
(`raysweep/report`), which is read back from the server or from the files of an offline run.
"""

from __future__ import annotations

import hashlib
import os
import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

import orjson
from pydantic import Field

from raysweep.errors import SpecError
from raysweep.hooks.base import (
    Callback,
    CallbackOptions,
    CallbackSetup,
    SinkDownError,
    TrialSetup,
    check_package,
)
from raysweep.hooks.events import CheckpointSaved, Report, TrialEnd, TrialRef, TrialStart
from raysweep.hooks.numbers import with_iteration

if TYPE_CHECKING:
    from raysweep.hooks.events import Values

MAX_OPEN: Final = 64
"""Runs that are open at a time; the one that was written to the longest ago is closed for a new one."""
NUMBER: Final = "raysweep/report"
_FIX: Final = "pip install raysweep[wandb]"
_INIT_S: Final = 30.0
_BLOCK: Final = 32768
_KEY_VARIABLES: Final = ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE")
_FAILED: Final = 1
_SERVICE: Final = "WANDB_SERVICE"


class WandbOptions(CallbackOptions):
    """Runs at Weights & Biases. The key comes from WANDB_API_KEY, or from `wandb login`."""

    places: ClassVar[Mapping[str, str]] = {"dir": ""}
    gets_all: ClassVar[bool] = True

    project: Annotated[str, Field(min_length=1)] | None = None
    """The project; default: WANDB_PROJECT, or the sweep's name."""
    entity: Annotated[str, Field(min_length=1)] | None = None
    """The user or team; default: WANDB_ENTITY, or that of the key."""
    mode: Literal["online", "offline"] | None = None
    """`offline` writes folders for `wandb sync`; default: WANDB_MODE, or online."""
    dir: Annotated[str, Field(min_length=1)] | None = None
    """A folder on the machine that runs the sweep, for wandb's files; default: the sweep's own folder."""
    shared_runs: bool = False
    """Let the trials log to these runs themselves; then a run is written once its trial has ended."""

    def check(self, storage_path: str) -> None:
        """See that the package, a folder and a key are there. Raises: SpecError."""
        check_package("wandb", "wandb", _FIX)
        path = self.dir or storage_path
        if "://" in path and not path.startswith("file://"):
            where = "dir" if self.dir else "storage_path"
            fix = "write dir: /path/to/wandb, a folder on the machine that runs the sweep"
            raise SpecError("callbacks.wandb.dir", f"{where} {path!r} is not a local folder", fix)
        has_key = any(os.environ.get(name) for name in _KEY_VARIABLES) or _netrc().exists()
        if self._mode() == "online" and not has_key:
            fix = "set WANDB_API_KEY where the sweep runs, or write mode: offline"
            raise SpecError("callbacks.wandb", "has no key: WANDB_API_KEY is not set", fix)

    def make(self, setup: CallbackSetup) -> Wandb:
        """The callback."""
        if "wandb" not in sys.modules:
            # That of the process that started this one, where its runs would stay open if it is killed.
            os.environ.pop(_SERVICE, None)
        folder = Path((self.dir or setup.uri).removeprefix("file://")).expanduser()
        project = self.project or os.environ.get("WANDB_PROJECT") or setup.name
        return Wandb(Runs(folder, project, self.entity, self._mode(), setup), is_shared=self.shared_runs)

    def in_trials(self, setup: TrialSetup) -> dict[str, str]:
        """The group and the project; with `shared_runs`, the run too."""
        found = {"WANDB_RUN_GROUP": setup.sweep_id}
        found["WANDB_PROJECT"] = self.project or os.environ.get("WANDB_PROJECT") or setup.name
        if self.entity:
            found["WANDB_ENTITY"] = self.entity
        if self.shared_runs:
            found["WANDB_RUN_ID"] = run_id(setup.sweep_id, setup.begun_at, "{trial}")
            found["WANDB_RESUME"] = "allow"
        return found

    def _mode(self) -> str:
        return self.mode or ("offline" if os.environ.get("WANDB_MODE") in ("offline", "dryrun") else "online")


def run_id(sweep_id: str, begun_at: float, trial: str) -> str:
    """The id of a trial's run: the same in each process; it has at most 64 characters."""
    return f"{_tag(sweep_id, begun_at)}-{trial}"


class Runs:
    """Opens the runs of one sweep, and knows what they hold."""

    def __init__(
        self, folder: Path, project: str, entity: str | None, mode: str, setup: CallbackSetup
    ) -> None:
        self._folder, self._project, self._entity, self._mode = folder, project, entity, mode
        self._setup = setup
        folder.mkdir(parents=True, exist_ok=True)
        self._marks = folder / f"wandb-{_tag(setup.sweep_id, setup.begun_at)}.jsonl"
        self.ended = self._read_marks()
        """The number of reports, and the event of the end, by trial."""

    def open(self, trial: str, config: Values) -> tuple[Any, int]:
        """The run, and the number of the last report that it holds. Raises: SinkDownError."""
        import wandb

        own = run_id(self._setup.sweep_id, self._setup.begun_at, trial)
        settings = wandb.Settings(
            x_disable_stats=True,
            x_disable_meta=True,
            x_disable_machine_info=True,
            x_save_requirements=False,
            console="off",
            silent=True,
            disable_git=True,
            disable_code=True,
            disable_job_creation=True,
            init_timeout=_INIT_S,
        )
        is_offline = self._mode == "offline"
        held = self._held_offline(own) if is_offline and self._setup.is_resumed else 0
        try:
            run = wandb.init(
                project=self._project,
                entity=self._entity,
                id=own,
                name=f"{self._setup.name} {trial}",
                group=self._setup.sweep_id,
                job_type="trial",
                tags=[f"{name}:{value}"[:64] for name, value in self._setup.tags.items()] or None,
                dir=str(self._folder),
                mode=self._mode,
                resume="allow",
                reinit="create_new",
                config=config,
                settings=settings,
            )
        except (wandb.errors.CommError, wandb.errors.AuthenticationError) as error:
            # A key that is wrong now may be mended while the sweep runs.
            raise SinkDownError(f"W&B does not answer: {type(error).__name__}") from error
        if not is_offline:
            held = int(run.summary.get(NUMBER) or 0)
        run.define_metric("iteration", hidden=True)
        run.define_metric("*", step_metric="iteration")
        return run, held

    def mark(self, trial: str, reports: int, event: str) -> None:
        """The run of an ended trial is whole."""
        self.ended[trial] = (reports, event)
        with self._marks.open("ab") as file:
            file.write(orjson.dumps({"trial": trial, "reports": reports, "event": event}) + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _read_marks(self) -> dict[str, tuple[int, str]]:
        found: dict[str, tuple[int, str]] = {}
        for line in self._marks.read_bytes().splitlines() if self._marks.exists() else ():
            try:
                mark = orjson.loads(line)
                found[mark["trial"]] = (mark["reports"], mark["event"])
            except (orjson.JSONDecodeError, KeyError):  # cut short
                continue
        return found

    def _held_offline(self, own: str) -> int:
        """The number of the last report in the offline folders of a run."""
        numbers = [0]
        for path in self._folder.glob(f"wandb/offline-run-*-{own}*/run-{own}.wandb"):
            for record in read_records(path.read_bytes()):
                numbers += [int(float(value)) for name, value in history_of(record).items() if name == NUMBER]
        return max(numbers)


@dataclass
class _Trial:
    """A trial, and what is to be written to its run."""

    rows: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    config: Values = field(default_factory=dict)
    reports: int = 0
    end: TrialEnd | None = None
    run: Any = None
    held: int = 0
    """The number of the last report in the run."""
    is_uncertain: bool = False
    """True if the run could not be closed: the next process finds what it holds."""


class Wandb(Callback):
    """Buffers events by trial, and writes them in `flush`."""

    def __init__(self, runs: Runs, *, is_shared: bool) -> None:
        self._runs, self._is_shared = runs, is_shared
        self._trials: dict[str, _Trial] = {}
        self._changed: dict[str, None] = {}
        self._open: dict[str, None] = {}
        """The open runs; the one that was written to last comes last."""

    def on_trial_start(self, event: TrialStart) -> None:
        """The config, which is another one where a population's trial continues with that of a better one."""
        trial = self._trial(event)
        trial.config, trial.end = event.config, None
        trial.summary["raysweep/attempts"] = event.attempt

    def on_report(self, event: Report) -> None:
        """A row; reports that do not count are left out."""
        trial = self._trial(event)
        if event.counts:
            trial.reports += 1
            trial.rows.append((trial.reports, with_iteration(event.iteration, event.metrics)))

    def on_checkpoint(self, event: CheckpointSaved) -> None:
        """Set the address of the newest checkpoint."""
        self._trial(event).summary["raysweep/checkpoint"] = event.uri

    def on_trial_end(self, event: TrialEnd) -> None:
        """Record the end of the trial."""
        trial = self._trial(event)
        trial.end, trial.config = event, event.config
        trial.summary |= {"raysweep/state": event.state, "raysweep/score": event.score}
        if event.error:
            trial.summary["raysweep/error"] = event.error

    def flush(self) -> None:
        """Write what waits. What was written is not written again by the next try."""
        for name in list(self._changed):
            trial = self._trials[name]
            if not self._is_stored(name, trial) and (trial.end is not None or not self._is_shared):
                self._write(name, trial)
            if trial.end is not None:
                trial.rows.clear()
            del self._changed[name]

    def close(self) -> None:
        """Close the runs that are open."""
        for name in list(self._open):
            self._close(name)

    def _trial(self, event: TrialRef) -> _Trial:
        self._changed[event.trial_id] = None
        return self._trials.setdefault(event.trial_id, _Trial())

    def _is_stored(self, name: str, trial: _Trial) -> bool:
        """True if the run was closed with all this by a process before."""
        reports, event = self._runs.ended.get(name, (0, ""))
        if trial.end is not None:
            return trial.end.id <= event
        return bool(event) and trial.reports <= reports

    def _write(self, name: str, trial: _Trial) -> None:
        if trial.run is None:
            if len(self._open) >= MAX_OPEN:
                self._close(next(iter(self._open)))
            trial.run, held = self._runs.open(name, trial.config)
            trial.held = max(trial.held, held)
        self._open.pop(name, None)
        self._open[name] = None
        for number, values in trial.rows:
            if number > trial.held:
                trial.run.log({**values, NUMBER: number})
                trial.held = number
        trial.rows.clear()
        trial.run.config.update(trial.config, allow_val_change=True)
        trial.run.summary.update(trial.summary)
        if trial.end is not None:
            self._close(name)
            if not trial.is_uncertain:
                self._runs.mark(name, trial.reports, trial.end.id)

    def _close(self, name: str) -> None:
        trial = self._trials[name]
        run, trial.run = trial.run, None
        self._open.pop(name, None)
        is_failed = trial.end is not None and trial.end.state == "failed"
        try:
            run.finish(exit_code=_FAILED if is_failed else 0)
        except BaseException:
            trial.is_uncertain = True
            raise


def history_of(record: bytes) -> dict[str, str]:
    """The values of a row, as JSON texts; none: the record is no row."""
    from wandb.proto.wandb_internal_pb2 import Record

    items = Record.FromString(record).history.item
    return {item.key or ".".join(item.nested_key): item.value_json for item in items}


def read_records(data: bytes) -> Iterator[bytes]:
    """The whole records of a `.wandb` file, up to where it was cut short.

    A header of 7 bytes; then blocks of 32 KiB with pieces of records: four bytes of checksum, two of length,
    one of kind (1: a whole record, 2: its first piece, 3: one in its middle, 4: its last).
    """
    position, whole = 7, b""
    while position + 7 <= len(data):
        if _BLOCK - position % _BLOCK < 7:
            position += _BLOCK - position % _BLOCK
            continue
        length, kind = struct.unpack_from("<HB", data, position + 4)
        end = position + 7 + length
        if not kind or end > len(data):
            return
        whole = (b"" if kind in (1, 2) else whole) + data[position + 7 : end]
        if kind in (1, 4):
            yield whole
        position = end


def _tag(sweep_id: str, begun_at: float) -> str:
    return hashlib.sha256(f"{sweep_id} {begun_at}".encode()).hexdigest()[:16]


def _netrc() -> Path:
    return Path(os.environ.get("NETRC") or "~/.netrc").expanduser()
