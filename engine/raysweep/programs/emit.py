"""`raysweep emit loss=0.3 step=2 [--checkpoint DIR]`: the `raysweep.report` of programs.

A client of the socket that `emit_server` holds: it returns once the report is made and the checkpoint is
copied. It imports nothing of raysweep, so that a loop in a shell can afford it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Sequence
from typing import Any, Final

VARIABLE: Final = "RAYSWEEP_EMIT"
"""Names the socket, in a program that a trial runs."""
USAGE: Final = (
    "raysweep emit NAME=VALUE [NAME=VALUE …] [--checkpoint DIR], or raysweep emit --infeasible REASON"
)
_HELP: Final = f"""Usage: {USAGE}

Report metrics of the trial that runs this program, as raysweep.report does in Python. It returns when the
report is made; with --checkpoint, when the folder is copied and may be changed. Where the scheduler decides
by this report it waits for the decision.

With --infeasible the trial ends: its config cannot work, and a rerun would not change that. It is not run
again, and a search that learns asks for fewer configs like it. Nothing else is reported with it.

A value is a number, true, false, null, other JSON, or text. Exit codes: 0 done, 1 failed, 2 bad input,
3 the trial is to end.
"""


def main(arguments: Sequence[str]) -> int:
    """Send one report and return the exit code; `arguments` are those after `emit`."""
    if any(word in ("-h", "--help") for word in arguments):
        sys.stdout.write(_HELP)
        return 0
    try:
        request = read_arguments(arguments)
    except ValueError as error:
        return _fail(f"{error}; usage: {USAGE}", 2)
    address = os.environ.get(VARIABLE)
    if not address:
        return _fail(f"works only in a program that a trial runs: {VARIABLE} is not set", 2)
    try:
        answer = send(address, request)
    except OSError as error:
        return _fail(f"the trial's worker cannot be reached: {error}", 1)
    if not answer:
        return _fail("the trial has ended: the report was not made", 1)
    if "error" in answer:
        return _fail(str(answer["error"]), 1)
    if "stopped" in answer:
        return _fail(f"the trial is to end ({answer['stopped']})", 3)
    return 0


def _fail(text: str, code: int) -> int:
    sys.stderr.write(f"raysweep emit: {text}\n")
    return code


def read_arguments(arguments: Sequence[str]) -> dict[str, Any]:
    """`{"metrics": {…}, "checkpoint": path or None}`, or that with `infeasible`. Raises ValueError."""
    metrics: dict[str, Any] = {}
    checkpoint: str | None = None
    rest = list(arguments)
    if rest and (rest[0] == "--infeasible" or rest[0].startswith("--infeasible=")):
        _, equals, reason = rest.pop(0).partition("=")
        if not equals and len(rest) == 1:
            reason = rest.pop()
        if rest or not reason:
            raise ValueError("--infeasible needs a reason, in quotes, and nothing else")
        return {"metrics": {}, "checkpoint": None, "infeasible": reason}
    while rest:
        word = rest.pop(0)
        if word == "--checkpoint" or word.startswith("--checkpoint="):
            if word == "--checkpoint" and not rest:
                raise ValueError("--checkpoint needs a folder")
            checkpoint = os.path.abspath(word.partition("=")[2] if "=" in word else rest.pop(0))
            continue
        name, equals, text = word.partition("=")
        if not equals or not name or name.startswith("-"):
            raise ValueError(f"{word!r} is no NAME=VALUE")
        metrics[name] = read_value(text)
    if not metrics:
        raise ValueError("no metrics")
    return {"metrics": metrics, "checkpoint": checkpoint}


def read_value(text: str) -> Any:
    """A number, a JSON value, or the text itself."""
    for read in (int, float) if "_" not in text else ():
        try:
            return read(text)
        except ValueError:
            continue
    try:
        return json.loads(text)
    except ValueError:
        return text


def send(address: str, request: dict[str, Any]) -> dict[str, Any]:
    """Send a request and wait for its answer; empty where the other side has closed. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.connect(address)
        sock.sendall(json.dumps(request).encode() + b"\n")
        received = b""
        while not received.endswith(b"\n"):
            part = sock.recv(65536)
            if not part:
                return {}
            received += part
    answer: dict[str, Any] = json.loads(received)
    return answer
