"""Cross-validation of a scikit-learn model: each fold is a report, and the score is the mean of all."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

FOLDS = 5


def train(config: Mapping[str, Any]) -> None:
    """Reports after each fold the mean accuracy so far; a config that starts badly is stopped."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import StratifiedKFold

    import raysweep as rs

    features, labels = load_breast_cancer(return_X_y=True)
    model = HistGradientBoostingClassifier(max_iter=60, random_state=0, **config)
    scores: list[float] = []
    for seen, unseen in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(features, labels):
        model.fit(features[seen], labels[seen])
        scores.append(model.score(features[unseen], labels[unseen]))
        rs.report({"accuracy": fmean(scores), "folds": len(scores)})
