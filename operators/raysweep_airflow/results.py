"""Small tasks between a sweep and what follows."""

from __future__ import annotations

from typing import Any

from airflow.sdk import task


@task
def top_k(outcome: dict[str, Any], k: int | None = None) -> list[dict[str, Any]]:
    """The best trials of a sweep as a list, to `expand` over: `train.expand(outcome=top_k(sweep.output))`.

    Args:
        outcome: What a `SweepOperator` returned.
        k: How many; default: all that it lists.
    """
    found: list[dict[str, Any]] = outcome["top_k"]
    return found if k is None else found[:k]
