"""The trial of a judgement: it evaluates one model, and stores its figures as its checkpoint."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from raysweep.documents.code.trainable import load_function
from raysweep.errors import RaysweepError
from raysweep.judge.figures import mean_of, read_figures
from raysweep.judge.model import ModelChangedError, changed_text, copy_model, digest_of_model
from raysweep.trial import report

FILE: Final = "figures.json"
FIGURE: Final = "figure"
"""The metric of the trial: the mean of its model's figures."""


def evaluate_model(config: Mapping[str, Any]) -> None:
    """Evaluate the model that the config names, on a copy of its files.

    Raises:
        ModelChangedError: Its files are not those of the config's digest; or `evaluate` changed them.
        FiguresError: `evaluate` returned something else than figures.
        StorageError: The files cannot be read.
    """
    evaluate = load_function(config["evaluate"], "judge.evaluate")
    with tempfile.TemporaryDirectory(prefix="raysweep-judge-") as folder:
        model, kept = Path(folder, "model"), Path(folder, "figures")
        model.mkdir()
        kept.mkdir()
        digest = copy_model(config["model"], model)
        if digest != config["digest"]:
            raise ModelChangedError(changed_text(config["model"], digest, config["digest"]))
        figures = read_figures(evaluate(model, config["data"]), digest)
        if _digest(model) != digest:
            raise RaysweepError("evaluate changed the files of its model; write elsewhere")
        Path(kept, FILE).write_text(figures.to_json())
        report({FIGURE: mean_of(figures.whole), "figures": len(figures.whole)}, kept, wait=True)


def _digest(model: Path) -> str:
    try:
        return digest_of_model(str(model))
    except RaysweepError:  # evaluate deleted them
        return ""
