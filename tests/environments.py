"""New virtual environments, with what a user has who needs less than everything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def new_environment(folder: Path, *extras: str) -> Path:
    """An environment with raysweep, its base dependencies, and these extras only; its interpreter."""
    uv = Path(sys.executable).with_name("uv")
    python = folder / "bin/python"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder], check=True, timeout=120)
    install = [uv, "pip", "install", "--quiet", "--python", python, "--constraint", ROOT / "constraints.txt"]
    what = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
    subprocess.run([*install, "--editable", what], check=True, timeout=240)
    return python
