"""Trains a network on handwritten digits; settings are flags. It knows nothing of raysweep."""

from __future__ import annotations

import argparse

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier


def main() -> None:
    """Print one line after each epoch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--rate", type=float, default=0.001)
    parser.add_argument("--epochs", type=int, default=9)
    args = parser.parse_args()
    pixels, digits = load_digits(return_X_y=True)
    seen, unseen, labels, truth = train_test_split(pixels / 16, digits, random_state=0)
    model = MLPClassifier(hidden_layer_sizes=(args.hidden,), learning_rate_init=args.rate, random_state=0)
    for epoch in range(1, args.epochs + 1):
        model.partial_fit(seen, labels, classes=range(10))
        print(f"epoch={epoch} accuracy={model.score(unseen, truth):.4f}", flush=True)


if __name__ == "__main__":
    main()
