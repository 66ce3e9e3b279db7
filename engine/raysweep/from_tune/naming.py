"""Names of a tuner that Tune makes or knows: of the experiment, its storage and registered trainables."""

from __future__ import annotations

import os
import re
from typing import Any, Final

from raysweep.documents.code.tune_objects import cells_of
from raysweep.threads import loaded_module

_DATE: Final = re.compile(r"_\d{4}-\d{2}-\d{2}_\d{2}-\d{2}-\d{2}")
_SHORT: Final = {"asha": "async_hyperband"}
_HOME: Final = "~/ray_results"


def name_of(held: Any) -> str:
    """The experiment's name; one that Tune has made loses its time, by which no restart would find it."""
    name = str(held._run_config.name)
    experiments = loaded_module("ray.tune.experiment")
    made_of = experiments.Experiment.get_trainable_name(held.converted_trainable)
    is_made = name.startswith(str(made_of)) and _DATE.fullmatch(name.removeprefix(str(made_of)))
    return str(made_of) if is_made else name


def storage_path_of(run_config: Any) -> str | None:
    """The storage path of the experiment; None for the folder that Tune takes where nothing is said."""
    path = str(run_config.storage_path)
    constants = loaded_module("ray.train.constants")
    default = getattr(constants, "DEFAULT_STORAGE_PATH", os.path.expanduser(_HOME))
    return None if path == default else path


def registered(trainable: Any) -> Any:
    """The trainable registered with Tune under a name; anything else, and unknown names, as they are."""
    registry = loaded_module("ray.tune.registry")
    if not isinstance(trainable, str) or registry is None:
        return trainable
    try:
        found = registry.get_trainable_cls(trainable)
    except Exception:  # noqa: BLE001  a TuneError, or what reading the name raises
        return trainable
    made = vars(found).get("_trainable_func")
    return cells_of(made).get("train_func", found) if made is not None else found


def made_by_name(given: Any, module: str, function: str) -> Any:
    """A searcher or scheduler that is given by Tune's name for it, as Tune makes it; others as they are.

    Names that Tune does not know stay texts.
    """
    made_by = getattr(loaded_module(module), function, None)
    if not isinstance(given, str) or made_by is None:
        return given
    try:
        return made_by(_SHORT.get(given, given))
    except (ValueError, ImportError):
        return given
