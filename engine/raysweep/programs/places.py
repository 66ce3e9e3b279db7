"""The values of one attempt's placeholders, and the variables of its program."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from raysweep.documents.placeholders import fill, names_in
from raysweep.programs.arguments import PlaceholderError, as_text, look_up, variables, write_config
from raysweep.programs.plan import Plan
from raysweep.trial.session import TrialContext

_MAX_VARIABLE: Final = 64 * 1024
"""Longer than that, the kernel would refuse the start."""
_LOCAL: Final = "127.0.0.1"


class Places:
    """The folders, numbers and addresses of one attempt."""

    def __init__(
        self,
        plan: Plan,
        config: Mapping[str, Any],
        context: TrialContext,
        folder: Path,
        restored: Path | None,
    ) -> None:
        self.plan = plan
        self.config = dict(config)
        self.context = context
        self.restored = restored
        self.output = folder / "output"
        self.output.mkdir()
        self.cwd = plan.cwd if plan.cwd and os.path.isdir(plan.cwd) else os.getcwd()
        self.master: tuple[str, int] | None = None
        self._folder = folder
        self._config_file: Path | None = None
        self._port = 0

    def meet(self, session: Any) -> None:
        """Find the address at which the ranks of a gang meet: a free port of rank 0's node.

        Raises:
            TrialStopped: The attempt is to end before all ranks have said their ports.
        """
        if self.context.world_size == 1 or not hasattr(session, "say_port"):
            return
        session.say_port(_free_port())
        host, _, port = session.await_addresses()[0].rpartition(":")
        self.master = host, int(port)

    def path(self, text: str) -> Path:
        """A path of the options: placeholders filled in, relative to the output folder."""
        return self.output / os.path.expanduser(fill(text, self.value_of))

    def pattern(self, text: str) -> tuple[Path, str]:
        """A pattern of folders as its root, and the pattern below it."""
        filled = os.path.expanduser(fill(text, self.value_of))
        if not os.path.isabs(filled):
            return self.output, filled
        parts = Path(filled).parts
        count = next((index for index, part in enumerate(parts) if set(part) & set("*?[")), len(parts) - 1)
        return Path(*parts[:count]), str(Path(*parts[count:]))

    def value_of(self, name: str) -> str:
        """The value of a placeholder; a parameter of the config comes first. Raises PlaceholderError."""
        try:
            return as_text(look_up(self.config, name))
        except KeyError:
            pass
        context = self.context
        match name:
            case "config_file":
                return str(self._write_config())
            case "checkpoint":
                return "" if self.restored is None else str(self.restored)
            case "output_dir":
                return str(self.output)
            case "sweep_id":
                return context.sweep_id
            case "python":
                return sys.executable
            case "seed":
                return str(context.seed)
            case "number" | "attempt" | "iteration":
                return str(getattr(context, name))
            case "rank" | "local_rank" | "node_rank" | "world_size":
                return str(getattr(context, name))
            case "gpus":
                return _amount(context.resources.get("GPU", 0.0) / context.world_size)
            case "cpus":
                return _amount(context.resources.get("CPU", 0.0) / context.world_size)
            case "master_addr":
                return self._meeting()[0]
            case "master_port":
                return str(self._meeting()[1])
            case "port":
                self._port = self._port or _free_port()
                return str(self._port)
        known = ", ".join(self.config) or "none"
        raise PlaceholderError(
            f"the command has {{{name}}}, and the config of this trial has no such parameter (it has {known})"
        )

    def _meeting(self) -> tuple[str, int]:
        if self.master is None:
            self.master = _LOCAL, _free_port()
        return self.master

    def _write_config(self) -> Path:
        if self._config_file is None:
            self._config_file = write_config(self.config, self.plan.config_file, self._folder)
        return self._config_file


def environment_of(plan: Plan, places: Places) -> dict[str, str]:
    """The variables of a program: those of this process, and what tells it of its trial."""
    context = places.context
    # Python's own programs of this environment are found first, as a trainable would find its packages.
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    found = dict(os.environ) | {
        "PATH": path,
        "RAYSWEEP_SWEEP_ID": context.sweep_id,
        "RAYSWEEP_TRIAL": str(context.number),
        "RAYSWEEP_ATTEMPT": str(context.attempt),
        "RAYSWEEP_SEED": str(context.seed),
        "RAYSWEEP_OUTPUT_DIR": str(places.output),
    }
    found.setdefault("PYTHONUNBUFFERED", "1")  # what it prints is seen as it is printed
    if places.restored is not None:
        found["RAYSWEEP_CHECKPOINT"] = str(places.restored)
    written = json.dumps(places.config, ensure_ascii=False)
    if len(written.encode()) <= _MAX_VARIABLE:
        found["RAYSWEEP_CONFIG"] = written
    if places.master is not None and context.world_size > 1:
        found |= {"MASTER_ADDR": places.master[0], "MASTER_PORT": str(places.master[1])}
        found.setdefault("GROUP_RANK", str(context.node_rank))
    if plan.arguments == "environment":
        named = [name for text in plan.texts for name in names_in(text)]
        found |= dict(variables(places.config, named=named))
    return found | {name: fill(text, places.value_of) for name, text in plan.environment.items()}


def _amount(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:g}"


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("", 0))
        port: int = sock.getsockname()[1]
    return port
