"""Fine-tunes a small BERT on made-up reviews with Hugging Face's `Trainer`, without downloads.

The script knows nothing of raysweep. Its last line continues from a checkpoint where
`--resume_from_checkpoint` names one, as the scripts of Hugging Face's own examples do.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
)

GOOD = ["great", "fine", "lovely", "bright", "warm"]
BAD = ["dull", "awful", "cold", "broken", "poor"]
PLAIN = ["the", "film", "was", "and", "a", "plot", "with", "actors", "scene", "music"]
WORDS = {word: number for number, word in enumerate((*GOOD, *BAD, *PLAIN))}
LENGTH = 16


def reviews(count: int, seed: int) -> list[dict[str, Any]]:
    """Sentences of 16 words: good ones have more good words than bad ones. One label in ten is wrong."""
    rng, found = random.Random(seed), []
    for _ in range(count):
        words = rng.choices([*GOOD, *BAD, *PLAIN], k=LENGTH)
        is_good = sum(word in GOOD for word in words) > sum(word in BAD for word in words)
        label = int(is_good) if rng.random() < 0.9 else 1 - int(is_good)
        found.append({"input_ids": torch.tensor([WORDS[word] for word in words]), "labels": label})
    return found


def accuracy(predicted: Any) -> dict[str, float]:
    """The share of labels that were found."""
    return {"accuracy": float((np.argmax(predicted.predictions, axis=1) == predicted.label_ids).mean())}


def main() -> None:
    """Train with the arguments of the command line."""
    (arguments,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
    torch.manual_seed(arguments.seed)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=arguments,
        train_dataset=reviews(2048, seed=1),
        eval_dataset=reviews(256, seed=2),
        compute_metrics=accuracy,
    )
    trainer.train(resume_from_checkpoint=arguments.resume_from_checkpoint)


if __name__ == "__main__":
    main()
