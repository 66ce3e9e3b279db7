"""Parameters as environment variables: their names, and which of these programs need for themselves."""

from __future__ import annotations

import re
from typing import Final

_OWN: Final = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "TMPDIR", "TMP", "TEMP", "TERM", "TZ",
    "LANG", "LANGUAGE", "IFS", "HOSTNAME", "VIRTUAL_ENV", "RANK", "WORLD_SIZE", "LOCAL_RANK",
    "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT",
})  # fmt: skip
_PREFIXES: Final = (
    "RAYSWEEP_",
    "RAY_",
    "LD_",
    "DYLD_",
    "PYTHON",
    "BASH",
    "CONDA_",
    "LC_",
    "SLURM_",
    "KUBERNETES_",
)
_SUFFIXES: Final = ("_VISIBLE_DEVICES", "_VISIBLE_CORES", "_VISIBLE_CHIPS")


def variable_of(path: str) -> str:
    """The variable of a parameter: `model.width` is `MODEL_WIDTH`."""
    return re.sub(r"\W", "_", path).upper()


def is_needed(name: str) -> bool:
    """True if raysweep, Ray, a shell, the loader, Python or a launcher uses a variable."""
    return name in _OWN or name.startswith(_PREFIXES) or name.endswith(_SUFFIXES)
