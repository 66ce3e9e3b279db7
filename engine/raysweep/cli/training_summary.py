"""The summary of a training run in `raysweep status`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from raysweep.cli.consoles import make_console, print_facts, print_json
from raysweep.cli.exit_codes import DONE
from raysweep.outcome import Standing
from raysweep.outcome.showing.formatting import show_age, show_config, show_duration


def show_training(status: Standing, is_json: bool) -> int:
    """Show one training run: running, ended, or left by a process that is gone."""
    if is_json:
        print_json(_as_json(status))
        return DONE
    console = make_console()
    colour = {"failed": "bold red", "interrupted": "bold yellow"}.get(status.status, "bold green")
    console.print(Text.assemble((status.status, colour), " ", status.run_id), soft_wrap=True)
    print_facts(console, *_facts(status))
    return DONE


def _facts(status: Standing) -> Iterator[tuple[str, str]]:
    yield "kind", "training run"
    done = status.training
    if done is not None:
        took = show_duration(done.took_s)
        yield "ended", f"{show_age(status.ended_ago_s)} ago, after {took}"
        yield "metrics", show_config(done.metrics)
        yield "config", show_config(done.config)
        yield "model", done.model_line
        if done.predicted is not None:
            yield "predicted", str(done.predicted)
    elif status.is_running:
        yield "run by", str(status.holder)
        yield "reports", str(status.reports)
    else:
        seen = (
            "" if status.holder is None else f" ({status.holder}, last seen {show_age(status.silent_s)} ago)"
        )
        yield "state", f"not running: its process is gone{seen}"
        yield "resume", "run `raysweep train` again with the same spec and key"
    if status.error is not None:
        yield "error", status.error.line
    yield "stored at", status.uri


def _as_json(status: Standing) -> dict[str, Any]:
    shown = status.model_dump(mode="json")
    same = ("kind", "run_id", "uri", "key", "status", "started_at", "ended_at", "error", "notes")
    return {
        **{name: shown[name] for name in same},
        "is_running": status.is_running,
        "reports": status.reports,
        "outcome": shown["training"],
    }
