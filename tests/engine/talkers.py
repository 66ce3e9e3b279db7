"""Trainables that write to their output in every way, and end in every way."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import raysweep as rs

Config = dict[str, Any]


def talks(config: Config) -> dict[str, float]:
    """Each way to say something, in order."""
    who = rs.get_context().number
    print(f"{who} from print")
    print(f"{who} from stderr", file=sys.stderr)
    logging.getLogger("mine").warning("%d from logging", who)
    ctypes.CDLL(None).puts(f"{who} from C".encode())
    subprocess.run(["echo", f"{who} from a child"], check=True)
    os.write(1, f"{who} from a descriptor\n".encode())
    print(f"{who} without an end of line", end="")
    return {"loss": config["x"]}


def talks_or_not(config: Config) -> dict[str, float]:
    """Every other trial prints nothing."""
    number = rs.get_context().number
    if number % 2:
        print(f"{number} speaks")
    return {"loss": config["x"]}


def ends(config: Config) -> dict[str, float]:
    """Says something last, and ends as it is asked to: the first attempt only."""
    print(f"attempt {rs.get_context().attempt} begins")
    if rs.get_context().attempt > 1:
        return {"loss": config["x"]}
    ctypes.CDLL(None).puts(b"C's last line")
    print("the last line")
    match config["how"]:
        case "raise":
            raise ValueError("as asked")
        case "exit":
            os._exit(3)
        case "sigkill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            ctypes.string_at(0)
        case "oom":
            held = bytearray(2 * 2**30)
            for place in range(0, len(held), 4096):
                held[place] = 1
            time.sleep(60)
    return {"loss": config["x"]}


def floods(config: Config) -> dict[str, float]:
    """Prints `lines` numbered lines of 100 bytes."""
    print("the first line")
    for number in range(config["lines"]):
        print(f"{number:099d}")
    print("the last line")
    return {"loss": config["x"]}


def speaks_and_waits(config: Config) -> dict[str, float]:
    """Speaks, and continues once there is a file."""
    print("before")
    while not Path(config["go"]).exists():
        time.sleep(0.05)
    print("after")
    return {"loss": config["x"]}
