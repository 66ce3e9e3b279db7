"""A trainable whose checkpoints say which they are, and that is killed while they upload."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import raysweep as rs

PART_BYTES = 700_000  # not a multiple of a chunk
PARTS = 6


def content(step: int) -> dict[str, bytes]:
    """The files of the checkpoint of a step: one part is new in each step, the others are of earlier ones."""
    newest = [max(0, step - (step - part) % PARTS) for part in range(PARTS)]
    files = {
        f"part-{part}": random.Random(f"{part} {made}").randbytes(PART_BYTES)
        for part, made in enumerate(newest)
    }
    return files | {"step": str(step).encode(), **{f"small/{n}": f"{n} {step}".encode() for n in range(30)}}


def digest(files: dict[str, bytes]) -> str:
    """Of names and contents."""
    whole = hashlib.blake2b(digest_size=16)
    for name, data in sorted(files.items()):
        whole.update(f"{name} {len(data)} ".encode() + data)
    return whole.hexdigest()


def read(folder: Path) -> dict[str, bytes]:
    """The files of a folder, by their paths in it."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def train(config: dict[str, Any]) -> None:
    """Each start logs what it was given: the step, and whether its content is that step's, to the last byte.

    `kills`: as many starts do not end but kill their process, each at a random moment; `is_ours`: what is
    reported is a folder of raysweep's.
    """
    log = Path(config["log"])
    step = -1
    if (checkpoint := rs.get_checkpoint()) is not None:
        with checkpoint as folder:
            given = read(folder)
        step = int(given["step"])
        is_whole = digest(given) == digest(content(step))
        _say(log, f"{'whole' if is_whole else 'MIXED'} {step}")
    else:
        _say(log, "new -1")
    starts = len(log.read_text().splitlines())
    if starts <= config["kills"]:
        delay = random.SystemRandom().uniform(0.0, config["within_s"])
        threading.Thread(target=_kill_later, args=(delay,), daemon=True).start()
    folder = Path(f"{config['log']}-folder-{os.getpid()}")
    while (step := step + 1) < config["steps"] or starts <= config["kills"]:
        files = content(step)
        if config["is_ours"]:
            with rs.new_checkpoint() as ours:
                write(ours, files)
                rs.report({"loss": 1.0 / (step + 1), "step": step}, checkpoint=ours)
        else:
            write(folder, files)
            rs.report({"loss": 1.0 / (step + 1), "step": step}, checkpoint=folder)
        time.sleep(config["pause_s"])


def write(folder: Path, files: dict[str, bytes]) -> None:
    """Files of the same content are left as they are, as a training does with what it does not change."""
    (folder / "small").mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        path = folder / name
        if not path.exists() or path.read_bytes() != data:
            path.write_bytes(data)


def _say(log: Path, line: str) -> None:
    with log.open("a") as file:
        file.write(f"{line}\n")


def _kill_later(delay_s: float) -> None:
    time.sleep(delay_s)
    os.kill(os.getpid(), signal.SIGKILL)
