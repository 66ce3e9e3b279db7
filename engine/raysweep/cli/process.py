"""Runs one command from start to exit code: sets up the process, turns errors into one line and a number."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Any, Final, NoReturn

from raysweep.cli.exit_codes import CANCELLED, DONE, FAILED, Detached, say, say_error

_TYPER_INTERRUPTED: Final = 130
_USAGE: Final = 2
_RESUMABLE: Final = ("sweep", "train", "resume", "retry", "extend", "pipeline")


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. RAYSWEEP_DEBUG=1 shows tracebacks and third parties' noise."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _show_any_text()
    with _set_up():
        try:
            if (strange := _not_text(given)) is not None:
                return _refused(given, f"argument {strange} is not valid UTF-8", _USAGE, "raysweep --help")
            return _call(given)
        except BrokenPipeError:
            # The reader of our output has closed it. Nothing may be flushed into the pipe at exit.
            _silence_stdout()
            return DONE
        except KeyboardInterrupt as error:
            return _interrupted(given, error)
        except Exception as error:  # noqa: BLE001  the outermost frame: everything becomes a line and a code
            return _failed(given, error)


def _show_any_text() -> None:
    """Write letters that the terminal's encoding lacks as `?`, instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="replace")


def is_debugging() -> bool:
    """True if the user asked for tracebacks."""
    return os.environ.get("RAYSWEEP_DEBUG", "") not in ("", "0")


def _call(arguments: list[str]) -> int:
    import typer

    from raysweep.cli.app import app
    from raysweep.cli.help_groups import command_for

    # The base of typer's errors is TyperException since 0.29, and was ClickException before.
    bases = typer.BadParameter.__mro__
    base: type[Any] = bases[bases.index(Exception) - 1]

    if not arguments:
        arguments = ["--help"]
    try:
        task = command_for(app, arguments[0])(arguments, prog_name="raysweep", standalone_mode=False)
    except base as error:
        command = next((word for word in arguments[:1] if word in _commands()), "")
        hint = f"raysweep {command} --help" if command else "raysweep --help"
        # "Value error, " is pydantic's, from inside typer.
        text = error.format_message().replace("Value error, ", "").rstrip(".")
        return _refused(arguments, text, error.exit_code, hint)
    if callable(task):
        return int(task())
    if task == _TYPER_INTERRUPTED:
        raise KeyboardInterrupt
    return DONE


def _not_text(arguments: list[str]) -> int | None:
    """The place of the first argument with bytes that are no text: no name and no document can hold it."""
    for place, argument in enumerate(arguments, start=1):
        if argument.encode("utf-8", "ignore").decode() != argument:
            return place
    return None


def _refused(arguments: list[str], text: str, code: int, hint: str) -> int:
    if _wants_json(arguments):
        from raysweep.cli.error_documents import print_document

        print_document("usage", text, code, next=hint)
    return say_error(f"{text}; see {hint}", code)


def _wants_json(arguments: list[str]) -> bool:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return "--json" in arguments[:end]


def _commands() -> list[str]:
    import typer

    from raysweep.cli.app import app

    return list(typer.main.get_group(app).commands)


def _failed(arguments: list[str], error: Exception) -> int:
    from raysweep.errors import RaysweepError, docs_of, one_line

    if is_debugging():
        traceback.print_exception(error)
    is_own = isinstance(error, RaysweepError)
    text = str(error) if is_own else one_line(f"{type(error).__name__}: {error}")
    code = error.exit_code if isinstance(error, RaysweepError) else FAILED
    if _wants_json(arguments):
        from raysweep.cli.error_documents import print_error

        print_error(error, text, code)
    if is_own:
        return say_error(text, code, docs=docs_of(error))
    return say_error(f"{text}; this is a bug of raysweep, RAYSWEEP_DEBUG=1 shows where", code)


def _interrupted(arguments: list[str], error: BaseException) -> int:
    from raysweep.cli.error_documents import print_document
    from raysweep.errors import SweepInterrupted

    if is_debugging():
        traceback.print_exception(error)
    is_json = _wants_json(arguments)
    if isinstance(error, Detached):
        if is_json:
            print_document("detached", str(error), CANCELLED, next=error.attach)
        return say(str(error), "detached", "yellow", CANCELLED)
    if not arguments or arguments[0] not in _RESUMABLE:
        return CANCELLED
    what = so_far = ""
    if isinstance(error, SweepInterrupted):
        what, so_far = f"{error.sweep_id} ", f"{error.so_far}; " if error.so_far else ""
    command = shlex.join(["raysweep", *arguments])
    if is_json:
        print_document("interrupted", f"{what}stopped cleanly", CANCELLED, retryable=True, next=command)
    text = f"{what}stopped cleanly; {so_far}resume it with: {command}"
    return say(text, "interrupted", "yellow", CANCELLED)


def _silence_stdout() -> None:
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  lives as long as the process


# -- set-up -------------------------------------------------------------------------------------------


@contextmanager
def _set_up() -> Iterator[None]:
    """The current folder can be imported from; third parties are quiet; SIGTERM ends cleanly."""
    here = os.getcwd()
    searched = list(sys.path)
    if not sys.flags.safe_path and here not in sys.path:
        sys.path.insert(0, here)
    before = _handle_sigterm()
    quiet = logging.NullHandler()
    root = logging.getLogger()
    try:
        with warnings.catch_warnings():
            if not is_debugging():
                # Without any handler Python prints the warnings of every library on standard error.
                root.addHandler(quiet)
                if not sys.warnoptions:
                    warnings.simplefilter("ignore")
            yield
    finally:
        root.removeHandler(quiet)
        if before is not None:
            signal.signal(signal.SIGTERM, before)
        sys.path[:] = searched


def _handle_sigterm() -> Any:
    """As Ctrl-C, also before the controller listens: an embedded Ray must not stay behind."""
    if threading.current_thread() is not threading.main_thread():
        return None
    return signal.signal(signal.SIGTERM, _raise_interrupt)


def _raise_interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt
