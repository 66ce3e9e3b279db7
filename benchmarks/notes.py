"""What is compared is noted by what runs, in one file with the time: nothing of it comes from a contender."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Note = dict[str, Any]


def write_note(config: Mapping[str, Any], **fields: Any) -> None:
    """One line to the file `config["notes"]`, in one write: several processes append to it."""
    line = json.dumps({**fields, "at": time.time()}) + "\n"
    file = os.open(config["notes"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def read_notes(file: Path, began: float = 0.0) -> list[Note]:
    """All notes in the order of their times; `at` is in seconds since `began`."""
    notes = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return sorted(({**note, "at": note["at"] - began} for note in notes), key=lambda note: note["at"])
