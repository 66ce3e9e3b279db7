"""Trainables that newcomers write, each broken in its own way. They know raysweep by `rs.report`."""

import asyncio
import ctypes
import os
import signal
import sys
import tempfile
import threading
import time

import raysweep as rs


def raises(config):
    rate = config["x"] * 2
    raise ValueError(f"rate must be below 1, got {rate > 0 and 'more'}")


def misspelled_key(config):
    return {"loss": config["learning_rate"]}


def misspelled_name(config):
    return {"loss": confg["x"]}  # noqa: F821


def missing_package(config):
    import pandsa  # noqa: F401

    return {"loss": 0}


def returns_nothing(config):
    loss = config["x"] ** 2  # noqa: F841


def returns_text(config):
    return "0.5"


def reports_number(config):
    rs.report(3.0)


def other_metric(config):
    rs.report({"accuracy": 0.9})


def nan(config):
    rs.report({"loss": float("nan")})


def array(config):
    import numpy

    rs.report({"loss": numpy.array([1.0, 2.0])})


def thing(config):
    rs.report({"loss": 1.0, "model": object()})


def leaves(config):
    rs.report({"loss": 1.0})
    os._exit(3)


def sys_exit(config):
    sys.exit("cannot find the data")


def killed(config):
    os.kill(os.getpid(), signal.SIGKILL)


def segfault(config):
    print("about to read where nothing is", flush=True)
    ctypes.string_at(0)


def no_memory(config):
    raise MemoryError("cannot allocate 64 GiB")


def recursion(config):
    return recursion(config)


class TwoPart(Exception):
    """Cannot be unpickled: its arguments are not those of its constructor."""

    def __init__(self, code, text):
        super().__init__(f"{code}: {text}")


def odd_exception(config):
    raise TwoPart(7, "the server said no")


def novel(config):
    raise RuntimeError("first line\n" + "the same line again, which says nothing new\n" * 2000)


def markup(config):
    raise ValueError("[red]not a colour[/red] [/] … naïve 😀")


def interrupts(config):
    raise KeyboardInterrupt


def takes_nothing():
    return {"loss": 0}


def generator(config):
    yield {"loss": 0}


async def coroutine(config):
    await asyncio.sleep(0)
    return {"loss": 0}


def hangs(config):
    rs.report({"loss": 1.0})
    time.sleep(600)


def no_checkpoint(config):
    rs.report({"loss": 1.0}, checkpoint="weights")


def file_for_checkpoint(config):
    with tempfile.NamedTemporaryFile() as file:
        rs.report({"loss": 1.0}, checkpoint=file.name)


def thread(config):
    def work():
        raise OSError("the thread's own error")

    threading.Thread(target=work).start()
    time.sleep(0.1)


def chatty(config):
    sys.stdout.write("x" * 10_000_000)
    sys.stdout.close()
    raise ValueError("after ten million letters")


def exits_well(config):
    rs.report({"loss": 1.0})
    sys.exit(0)
