"""Runs one command of raysweep in a process of its own, and returns its JSON document."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

SCHEMA_VERSION: Final = 1
"""As `raysweep.cli.consoles` writes it."""
LOOK_S: Final = 120.0
"""Seconds that a command which only reads may take."""
MAX_BYTES: Final = 100_000
"""Of a command line: Linux starts no process with an argument of 128 KiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A command that has ended: its document and exit code."""

    document: Mapping[str, Any]
    code: int

    @property
    def is_error(self) -> bool:
        """True where the document is that of an error."""
        return "error" in self.document and set(self.document) <= {"error", "schema_version"}


def error(code: str, message: str, **fields: Any) -> Ran:
    """An error of this server, as `raysweep.cli.error_documents` writes those of the command line."""
    shown = {"code": code, "message": message, "exit_code": 2, **fields}
    return Ran(document={"schema_version": SCHEMA_VERSION, "error": shown}, code=2)


def command_line(verb: str, *given: str, **options: str | int | None) -> list[str]:
    """The words of a command with `--json`: what is given stays text, also where it begins with a dash."""
    named = [f"--{name.replace('_', '-')}={value}" for name, value in options.items() if value is not None]
    return [verb, "--json", *named, "--", *given]


def refused(words: Sequence[str]) -> Ran | None:
    """The error of words that no command line can hold: a null byte, half a character, or too many."""
    text = "".join(words)
    encoded = text.encode("utf-8", "ignore")
    if "\0" in text or encoded.decode() != text:
        return error("usage", "an argument has a character that no command line can hold")
    if len(encoded) > MAX_BYTES:
        problem = f"the arguments have {len(encoded):,} bytes; at most {MAX_BYTES:,} are passed on"
        return error("usage", problem)
    return None


def process_of(words: Sequence[str], **how: Any) -> subprocess.Popen[bytes]:
    """Start a command of raysweep, in a session of its own: signals to the server do not reach it."""
    return subprocess.Popen(
        [sys.executable, "-m", "raysweep.cli", *words],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        **how,
    )


def run(words: Sequence[str], *, timeout_s: float = LOOK_S) -> Ran:
    """Run a command to its end.

    What it prints for people is dropped. One that takes too long is ended with all that it has started.
    """
    if (problem := refused(words)) is not None:
        return problem
    with process_of(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            out, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            return error("timed_out", f"no answer within {timeout_s:g} s", retryable=True)
    return ran(out, process.returncode)


def ran(out: bytes, code: int) -> Ran:
    """The output of a command that ended with this code."""
    try:
        document = orjson.loads(out)
    except orjson.JSONDecodeError:
        return error("bug", f"the command printed no document, and ended with exit code {code}")
    return Ran(document=document if isinstance(document, dict) else {"rows": document}, code=code)
