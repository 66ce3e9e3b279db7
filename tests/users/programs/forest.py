"""scikit-learn with a mixed search space, as its README would have it."""

from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score

import raysweep as rs


def train(config):
    images, labels = load_digits(return_X_y=True)
    model = RandomForestClassifier(random_state=0, **config)
    return {"accuracy": cross_val_score(model, images[:500], labels[:500], cv=3).mean()}


if __name__ == "__main__":
    outcome = rs.run_sweep(
        {
            "name": "forest",
            "trainable": train,
            "param_space": {
                "n_estimators": {"randint": [5, 30]},
                "max_depth": {"choice": [None, 3, 8]},
                "criterion": {"choice": ["gini", "entropy"]},
                "min_samples_leaf": {"lograndint": [1, 30]},
                "max_features": {"uniform": [0.1, 1.0]},
                "bootstrap": {"choice": [True, False]},
            },
            "metric": "accuracy",
            "mode": "max",
            "num_samples": 6,
            "seed": 3,
            "storage_path": "results",
        }
    )
    frame = outcome.to_dataframe()
    print(frame.dtypes.filter(like="config").to_string())
    print(outcome.best.config)
    RandomForestClassifier(**outcome.best.config)
