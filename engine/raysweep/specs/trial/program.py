"""A command as what a trial runs: its options, and the checks of its placeholders.

`Command` is the argument list, `ProgramSpec` says how the config reaches the program and what is read of it.
`raysweep.programs` runs it; nothing here starts anything.
"""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from raysweep.documents.base import SpecModel
from raysweep.documents.placeholders import names_in
from raysweep.documents.validation import Problem, did_you_mean, show
from raysweep.specs.trial.command import EXAMPLE, SEVERAL
from raysweep.specs.trial.service import ServiceSpec

RUNNER: Final = "raysweep.programs.runner:run"
"""The `trainable` of a spec with a command."""
BUILT_IN: Final = (
    "args", "resume", "config_file", "checkpoint", "output_dir", "sweep_id", "number", "attempt", "seed",
    "gpus", "cpus", "rank", "local_rank", "node_rank", "world_size", "master_addr", "master_port", "port",
    "python", "iteration",
)  # fmt: skip
"""Placeholders that are no parameters."""
RESERVED: Final = ("args", "resume", "config_file", "checkpoint", "output_dir")
"""No parameter may have these names where the command has the placeholder."""
_OF_CONFIG: Final = ("args", "config_file")
_SERVICE: Final = ("program", "service", "command")


def _words(given: Any) -> Any:
    """Arguments as a list, or as one text that is split as a shell would."""
    if isinstance(given, str):
        try:
            return tuple(shlex.split(given))
        except ValueError as error:
            raise Problem(f"{show(given)} is not a list of arguments: {error}", "close the quotes") from None
    return tuple(given) if isinstance(given, list) else given


def _signal(given: Any) -> Any:
    if isinstance(given, str):
        name = given.upper() if given.upper().startswith("SIG") else f"SIG{given.upper()}"
        if name in signal.Signals.__members__:
            return name
    known = ("SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGHUP")
    raise Problem(f"{show(given)} is not a signal", did_you_mean(str(given), known))


def _pattern(given: str) -> str:
    try:
        compiled = re.compile(given)
    except re.error as error:
        raise Problem(f"{show(given)} is not a regular expression: {error}", "fix the pattern") from None
    if not compiled.groupindex:
        fix = r'name what is a metric: "loss=(?P<loss>\S+)"'
        raise Problem(f"{show(given)} has no named group", fix)
    return given


Words = Annotated[
    tuple[str, ...],
    BeforeValidator(_words),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
Signal = Annotated[str, BeforeValidator(_signal)]
Path = Annotated[str, Field(min_length=1)]


class MetricsSource(SpecModel):
    """The source of a program's metrics; exactly one. `raysweep emit` works beside each.

    Relative paths are in the program's output folder.
    """

    jsonl: Path | None = None
    """A file to which the program appends a JSON object for each report."""
    stdout: Annotated[str, AfterValidator(_pattern)] | None = None
    r"""A regular expression; a line of stdout that has it is a report: `"loss=(?P<loss>\\S+)"`."""
    tensorboard: Path | None = None
    """A folder of TensorBoard event files; the scalars of one step are a report."""
    trainer_state: Path | None = None
    """The output folder of a Hugging Face `Trainer`; the log entries of one step are a report."""

    @model_validator(mode="after")
    def _check(self) -> MetricsSource:
        given = [name for name, value in self if value is not None]
        if len(given) != 1:
            what = f"has {' and '.join(given)}" if given else "names no source"
            raise Problem(what, "give exactly one of jsonl, stdout, tensorboard, trainer_state")
        return self

    @property
    def chosen(self) -> tuple[Literal["jsonl", "stdout", "tensorboard", "trainer_state"], str]:
        """The source and its path or pattern."""
        names: tuple[Literal["jsonl", "stdout", "tensorboard", "trainer_state"], ...]
        names = ("jsonl", "stdout", "tensorboard", "trainer_state")
        return next((name, text) for name in names if (text := getattr(self, name)) is not None)


class ProgramCheckpoints(SpecModel):
    """The folders of a program that are checkpoints, and the arguments to resume from one."""

    folder: Path | None = None
    """A pattern of folders in the output folder, `checkpoint-*`; the newest complete one is stored."""
    marker: Path | None = None
    """The file of a checkpoint that is written last; default: it is complete after a second of no changes."""
    resume: Words = ()
    """Arguments of an attempt that has a checkpoint: `--resume_from_checkpoint {checkpoint}`.

    They are where the command has `{resume}`, else at its end.
    """

    @model_validator(mode="after")
    def _check(self) -> ProgramCheckpoints:
        if self.marker is not None and self.folder is None:
            raise Problem("requires folder", "name the folders: folder: checkpoint-*", ("marker",))
        return self


class ProgramStop(SpecModel):
    """The end of a program: a signal to all its processes, a grace period, then SIGKILL."""

    signal: Signal = "SIGTERM"
    """The signal."""
    grace_s: Annotated[float, Field(ge=0)] = 10.0
    """The longest time to end after the signal, in seconds."""
    checkpoint_signal: Signal | None = None
    """The signal to write a checkpoint now: the program's node is about to go, or the sweep ends."""


def _checkpoints(given: Any) -> Any:
    return {"folder": given} if isinstance(given, str) else given


class ProgramSpec(SpecModel):
    """The rules for a command: its config, metrics, checkpoints and end."""

    renamed_fields: ClassVar[dict[str, str]] = {"env": "environment", "args": "arguments"}

    arguments: Literal["flags", "switches", "equals", "hydra", "environment"] = "flags"
    """The form of a parameter in `{args}`: `--lr 0.1`, `--lr=0.1`, `lr=0.1` as hydra has it.

    `switches`: as `flags`, but true is `--fp16`, and false is left out. `environment`: as a variable,
    `LR=0.1`, and `{args}` is empty.
    """
    config_file: Literal["json", "yaml"] = "json"
    """The format of `{config_file}`."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Variables of the program; values may have placeholders: `{WANDB_NAME: "trial-{number}"}`."""
    metrics: MetricsSource | None = None
    """The source of its metrics; default: what it reports by `raysweep emit`."""
    checkpoints: Annotated[ProgramCheckpoints, BeforeValidator(_checkpoints)] = ProgramCheckpoints()
    """The folders that are checkpoints; default: what it reports by `raysweep emit … --checkpoint DIR`."""
    stop: ProgramStop = ProgramStop()
    """The way it is ended."""
    service: ServiceSpec | None = None
    """A server that runs beside it, which the trial tunes or the program needs."""

    def templates(self, command: Sequence[str]) -> Iterable[tuple[tuple[str | int, ...], str]]:
        """Each text that may have placeholders, with its path in the spec."""
        for index, item in enumerate(command):
            yield ("command", index), item
        for name, text in self.environment.items():
            yield ("program", "environment", name), text
        for index, item in enumerate(self.checkpoints.resume):
            yield ("program", "checkpoints", "resume", index), item
        if self.service is not None:
            for index, item in enumerate(self.service.command):
                yield (*_SERVICE, index), item
            yield ("program", "service", "ready"), self.service.ready
            for name, text in self.service.environment.items():
                yield ("program", "service", "environment", name), text

    def file_templates(self) -> Iterable[tuple[tuple[str | int, ...], str]]:
        """Each path that may have placeholders, with its place in the spec."""
        if self.metrics is not None and self.metrics.chosen[0] != "stdout":
            yield ("program", "metrics", self.metrics.chosen[0]), self.metrics.chosen[1]
        if self.checkpoints.folder is not None:
            yield ("program", "checkpoints", "folder"), self.checkpoints.folder


def commands_of(command: Sequence[str], program: ProgramSpec | None) -> dict[str, Sequence[str]]:
    """The commands of a spec by their fields: the program's, and its server's."""
    service = program.service if program is not None else None
    return {"command": command} | ({"program.service.command": service.command} if service else {})


def with_runner(given: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """The fields of a spec; with a command, its `trainable` is what runs commands.

    Raises: Problem where both are given, or `program` without a command.
    """
    trainable, command = given.get("trainable"), given.get("command")
    if command is None:
        if given.get("program") is not None:
            raise Problem("requires command", 'add command: [python, train.py, "{args}"]', ("program",))
        if trainable == RUNNER:
            raise Problem(f"{RUNNER} runs a command", EXAMPLE, ("command",))
        return given
    if trainable not in (None, RUNNER):
        raise Problem("cannot be combined with trainable", "give one of them", ("command",))
    return {**given, "trainable": RUNNER}


def check_placeholders(
    command: Sequence[str], program: ProgramSpec, paths: Sequence[str], *, is_whole: bool
) -> None:
    """See that each placeholder has a value, and that each parameter reaches the program.

    Args:
        command: The spec's command.
        program: Its options.
        paths: The config's parameters, dotted.
        is_whole: Whether the config has no others; else unknown placeholders are left to the trial.

    Raises: Problem.
    """
    used = {name for _, text in program.templates(command) for name in names_in(text)}
    for path, text in (*program.templates(command), *program.file_templates()):
        for name in names_in(text):
            is_service = name == "args" and path[:3] == _SERVICE
            if name in SEVERAL and path[0] != "command" and not is_service:
                fix = "write it in command, as an argument of its own"
                raise Problem(f"{show(text)} has {{{name}}}, which is several arguments", fix, path)
            if name in RESERVED and name in paths:
                fix = f"rename the parameter, or write {{{{{name}}}}} where the text {{{name}}} is meant"
                raise Problem(f"{{{name}}} is a parameter and a placeholder of its own", fix, path)
            if is_whole and name not in BUILT_IN and not _is_parameter(name, paths):
                known = ", ".join((*paths, *BUILT_IN))
                raise Problem(
                    f"{show(text)} has the unknown placeholder {{{name}}}", f"use one of {known}", path
                )
    if "{args}" not in command and args_are_implied(command, program, paths):
        return
    if program.arguments == "environment" or used & set(_OF_CONFIG):
        return
    missing = next((path for path in paths if not is_named(path, used)), None)
    if missing is not None:
        raise Problem(
            f"the parameter {missing} does not reach the program",
            f'add "{{{missing}}}", "{{args}}" or "{{config_file}}"',
            ("command",),
        )


def args_are_implied(command: Sequence[str], program: ProgramSpec, paths: Iterable[str]) -> bool:
    """True if `{args}` is added to the end: nothing else says how the config reaches the program."""
    if program.arguments == "environment":
        return False
    used = {name for _, text in program.templates(command) for name in names_in(text)}
    known = list(paths)
    return not used & set(_OF_CONFIG) and not any(_is_parameter(name, known) for name in used)


def _is_parameter(name: str, paths: Sequence[str]) -> bool:
    return any(name == path or name.startswith(f"{path}.") or path.startswith(f"{name}.") for path in paths)


def is_named(path: str, used: Iterable[str]) -> bool:
    """True if a placeholder, of `used`, names a parameter, a part of it, or what it is a part of."""
    return any(path == name or path.startswith(f"{name}.") or name.startswith(f"{path}.") for name in used)


def require_command(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a spec that has a `trainable` or a `command`."""
    schema["required"] = [name for name in schema.get("required", ()) if name != "trainable"]
    # The model takes null for one that is not given.
    found = schema["properties"]["trainable"]
    schema["properties"]["trainable"] = {
        "anyOf": [{key: found[key] for key in found if key != "description"}, {"type": "null"}],
        **({"description": found["description"]} if "description" in found else {}),
    }
    schema["anyOf"] = [{"required": ["trainable"]}, {"required": ["command"]}]
    return schema
