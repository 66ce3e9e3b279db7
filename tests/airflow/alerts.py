"""What a DAG's deadline alert calls in the tests: it notes the run and the deadline in the home folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


async def note(context: dict[str, Any]) -> None:
    """One line for each deadline that a run has missed."""
    line = [context["dag_run"]["dag_run_id"], str(context["deadline"]["deadline_time"])]
    with (Path.home() / "alerts.log").open("a") as file:
        file.write(f"{json.dumps(line)}\n")
