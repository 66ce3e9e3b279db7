"""The exit code of a command and the one line that explains it."""

from __future__ import annotations

from typing import Final

DONE: Final = 0
FAILED: Final = 1
CANCELLED: Final = 3
PARTIAL: Final = 6
"""With `--json`: a deadline or a budget ended the sweep early. 2, 4 and 5 come with errors."""


class Detached(KeyboardInterrupt):
    """Ctrl-C of a command that only follows what runs on a cluster, and continues there.

    `attach` and `cancel` are the commands that come back to it.
    """

    def __init__(self, run_id: str, *, attach: str, cancel: str, is_leased: bool = False) -> None:
        super().__init__(run_id)
        self.run_id = run_id
        self.attach = attach
        self.cancel = cancel
        self.is_leased = is_leased

    def __str__(self) -> str:
        goes_on = "keeps running until its lease ends" if self.is_leased else "keeps running"
        return f"{self.run_id} {goes_on}; follow it with: {self.attach} or end it with: {self.cancel}"


def say_error(text: str, code: int, *, docs: str = "") -> int:
    """Print `error: <text>` as one line on standard error; returns the code.

    `docs`: the section of the documentation about it, which a second line names on a terminal.
    """
    return say(text, "error", "bold red", code, docs=docs)


def say(text: str, head: str, style: str, code: int, *, docs: str = "") -> int:
    """Print `<head>: <text>` as one line on standard error; returns the code. `docs`: as `say_error`."""
    from rich.text import Text

    from raysweep.terminal import TextConsole

    line = Text.assemble((f"{head}:", style), " ", " ".join(text.split()))
    console = TextConsole(stderr=True)
    console.print(line, soft_wrap=True)
    if docs and console.is_terminal:
        console.print(f"see {docs}", style="dim", soft_wrap=True)
    return code
