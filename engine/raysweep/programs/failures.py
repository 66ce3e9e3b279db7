"""The failure of a program: its exit code, the signal that ended it, the last lines of its output."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from typing import Final

from raysweep.errors import ProgramFailedError, one_line
from raysweep.programs.last_error import TRACEBACK, text_of_last_error
from raysweep.worker.host.gpu_failures import find_gpu_oom

_SHELL_OF_SIGNAL: Final = 128
_DEADLY: Final = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS)
"""The signals that a shell's exit code above 128 is read as; programs use other codes themselves."""
_OF_HOST: Final = re.compile(
    r"^MemoryError\b|\bMemoryError:|std::bad_alloc|Cannot allocate memory|can't allocate memory"
    r"|numpy\S*\._ArrayMemoryError|java\.lang\.OutOfMemoryError|^Out of memory\b|\boom-kill",
    re.MULTILINE | re.IGNORECASE,
)
_KILLED_RANK: Final = re.compile(r"exitcode\s*:?\s*-9\b|Signal 9 \(SIGKILL\)|died with <Signals\.SIGKILL: 9>")
"""The texts by which launchers (torchrun, accelerate) say that a process of theirs was killed."""
_OF_LAUNCHER: Final = re.compile(
    r"^(?:subprocess\.CalledProcessError: Command '\[.*|torch\.distributed\.\S*ChildFailedError:.*)$",
    re.MULTILINE,
)
"""The last lines of launchers (accelerate, torchrun), below their traceback, after their process failed."""
_RAISED: Final = re.compile(r"(?:\[\w+\]:\s*)?[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b(?::|$)")


class MetricNeverReported(ProgramFailedError):
    """The program ended well and reported nothing."""


def failure_of(
    command: Sequence[str], code: int, stderr: str, *, is_kernel_oom: bool, output: str = ""
) -> ProgramFailedError:
    """The failure of a program.

    Args:
        command: Its arguments.
        code: Its exit code; below 0, the number of the signal that ended it.
        stderr: The last of what it wrote to stderr.
        is_kernel_oom: Whether the kernel has ended a process for want of memory while it ran.
        output: What the failure shows as its traceback; default: `stderr`.
    """
    name, last = name_of(command), _last_line(stderr)
    killed = code == -signal.SIGKILL or code == _SHELL_OF_SIGNAL + signal.SIGKILL
    own, of_launcher = _apart(stderr)
    ended_by = text_of_last_error(own)
    killed = killed or _KILLED_RANK.search(own[max(own.rfind(TRACEBACK), 0) :] + of_launcher) is not None
    how = _how(code)
    said = f": {last}" if last else ""
    if words := find_gpu_oom(ended_by):
        message = f"{name} ran out of GPU memory ({words}) and ended with {how}{said}"
        return ProgramFailedError(one_line(message), output or stderr, code, "gpu_memory")
    if (found := _OF_HOST.search(ended_by)) or (killed and is_kernel_oom):
        why = found[0] if found else "the kernel ended a process of it"
        message = f"{name} ran out of memory ({why}) and ended with {how}{said}"
        return ProgramFailedError(one_line(message), output or stderr, code, "memory")
    is_lost = code < 0 or killed or code - _SHELL_OF_SIGNAL in _DEADLY
    message = f"{name} ended with {how}{said}"
    return ProgramFailedError(
        one_line(message), output or stderr, code, "process" if is_lost else "exception"
    )


def name_of(command: Sequence[str]) -> str:
    """The name of a program in messages: its script where an interpreter runs it."""
    first = command[0].rpartition("/")[2]
    script = next((item for item in command[1:9] if item.endswith((".py", ".sh"))), "")
    return script or first


def _how(code: int) -> str:
    number = -code if code < 0 else code - _SHELL_OF_SIGNAL
    if code < 0 or number in _DEADLY:
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        return name if code < 0 else f"exit code {code} ({name})"
    return f"exit code {code}"


def _apart(text: str) -> tuple[str, str]:
    """The output of the program itself, and that of the launcher that saw it fail."""
    found = list(_OF_LAUNCHER.finditer(text))
    if not found:
        return text, ""
    end = max(text.rfind(TRACEBACK, 0, found[-1].start()), 0)
    return text[:end], text[end:]


def _last_line(text: str) -> str:
    """The last line by the program itself, not by the launcher that saw it fail."""
    own, of_launcher = _apart(text)
    lines = [line for line in own.splitlines() if line.strip()]
    raised = [line for line in lines if _RAISED.match(line)] if of_launcher else []
    if not lines:
        found = _OF_LAUNCHER.search(of_launcher)
        return one_line(found[0], 300) if found else ""
    return one_line((raised or lines)[-1], 300)
