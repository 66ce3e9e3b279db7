"""The groups of commands in `raysweep --help`, its exit codes, and an example for each command."""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Mapping
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_command_name
from typer.models import CommandInfo

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "Run": ("init", "sweep", "train", "pipeline", "judge", "plan", "doctor"),
    "Look": (
        "status",
        "top",
        "nights",
        "best",
        "compare",
        "transfer",
        "trials",
        "logs",
        "report",
        "dashboard",
        "export",
    ),
    "Champions": ("approve", "evidence", "rollback", "register"),
    "Continue or end": ("resume", "retry", "extend", "restart", "attach", "cancel", "deliver"),
    "Storage and clusters": ("budget", "checkpoints", "pull", "verify", "gc", "rm", "clusters"),
    "In programs, of specs": ("emit", "schema", "mcp"),
}
OTHER: Final = "More"
EXIT_CODES: Final = (
    "Exit codes: 0 done, 1 failed, 2 bad input, 3 cancelled or interrupted, 4 there with another spec, "
    "5 still running; with --json also 6, partial."
)
COMPLETION: Final = "_RAYSWEEP_COMPLETE"
"""Set where a shell asks for what may follow."""

EXAMPLES: Final[Mapping[str, str]] = {
    "init": "raysweep init churn",
    "sweep": "raysweep sweep churn.yaml --key 2026-11-25 --set num_samples=40",
    "train": "raysweep train full.yaml --from-sweep churn@latest",
    "pipeline": 'raysweep pipeline night.yaml --key "$(date +%F)" --set sweep.num_samples=40',
    "judge": "raysweep judge night.yaml --key 2026-11-25",
    "plan": "raysweep plan churn.yaml --address http://head:8265",
    "doctor": "raysweep doctor churn.yaml --address http://head:8265",
    "status": "raysweep status --since 7d --state failed",
    "top": "raysweep top s3://bucket/sweeps",
    "nights": "raysweep nights churn --last 7",
    "best": "raysweep best churn@latest",
    "transfer": "raysweep transfer churn@latest --scale rows=336776",
    "compare": "raysweep compare churn@base churn@change --by seed",
    "trials": "raysweep trials churn@2026-11-25 --sort auc --top 10",
    "report": "raysweep report churn@latest --open",
    "export": "raysweep export churn@latest --to optuna --out sqlite:///churn.db",
    "dashboard": "raysweep dashboard s3://bucket/sweeps",
    "logs": "raysweep logs churn@latest --trial 3",
    "approve": 'raysweep approve churn@latest --note "looked at the curves"',
    "evidence": "raysweep evidence churn@2026-11-25",
    "rollback": 'raysweep rollback churn --to 2026-11-24 --why "bad on Mondays"',
    "register": "raysweep register churn",
    "resume": "raysweep resume churn@latest",
    "retry": "raysweep retry churn@latest --trial 3",
    "extend": "raysweep extend churn@latest --top 3 --max-t 81",
    "restart": "raysweep restart churn@2026-11-25",
    "attach": "raysweep attach churn@latest",
    "cancel": 'raysweep cancel churn@latest --reason "wrong data"',
    "deliver": "raysweep deliver churn@latest",
    "budget": "raysweep budget agent --cpu-hours 100",
    "checkpoints": "raysweep checkpoints churn@latest",
    "pull": "raysweep pull s3://bucket/sweeps/churn-0a1b2c3d4e/checkpoints/00003/12 model",
    "verify": "raysweep verify churn@latest --quick",
    "gc": "raysweep gc churn --dry-run",
    "clusters": "raysweep clusters night.yaml --remove",
    "rm": "raysweep rm churn@2026-11-25",
    "emit": "raysweep emit loss=0.3 step=2",
    "schema": "raysweep schema pipeline",
    "mcp": "raysweep mcp --storage s3://bucket/sweeps",
}


class GroupedCommands(TyperGroup):
    """A group that lists its commands by what they are for."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each group, and one for commands of no group."""
        names = [name for name in self.list_commands(ctx) if name not in _listed()]
        for title, members in (*GROUPS.items(), (OTHER, tuple(names))):
            rows = []
            for name in members:
                command = self.get_command(ctx, name)
                if command is not None and not command.hidden:
                    rows.append((name, command.get_short_help_str(limit=70)))
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def add_examples(*apps: typer.Typer) -> None:
    """End the help of each command with its example."""
    for app in apps:
        for command in app.registered_commands:
            name = str(command.name or getattr(command.callback, "__name__", ""))
            if command.epilog is None and name in EXAMPLES:
                command.epilog = f"Example: {EXAMPLES[name]}"


def command_for(app: typer.Typer, word: str) -> Any:
    """The command line as far as its first word needs it: typer takes half a millisecond for each command."""
    infos = {_name(info): info for info in _registered(app)}
    is_help = word in ("--help", "-h")
    if not (is_help or word in infos) or COMPLETION in os.environ:
        return get_command(app)
    small = copy.copy(app)
    small.registered_groups, small.registered_commands = [], [] if is_help else [infos[word]]
    group: Any = get_command(small)
    if is_help:
        group.commands = {name: _named(name, info) for name, info in infos.items()}
    return group


def _registered(app: typer.Typer) -> list[CommandInfo]:
    inner = [group.typer_instance for group in app.registered_groups]
    return [*app.registered_commands, *(info for each in inner if each for info in _registered(each))]


def _name(info: CommandInfo) -> str:
    return info.name or get_command_name(getattr(info.callback, "__name__", ""))


def _named(name: str, info: CommandInfo) -> TyperCommand:
    """A command as a list of commands shows it: without its options."""
    return TyperCommand(name, help=inspect.getdoc(info.callback), hidden=info.hidden)


def _listed() -> frozenset[str]:
    return frozenset(name for members in GROUPS.values() for name in members)
