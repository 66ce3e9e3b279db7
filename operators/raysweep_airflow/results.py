"""Small tasks between a sweep and what follows."""

from __future__ import annotations

from typing import Any

from airflow.sdk import task


@task
def top_k(outcome: dict[str, Any], k: int | None = None) -> list[dict[str, Any]]:
    """The best trials of a sweep as a list, to `expand` over: `train.expand(outcome=top_k(sweep.output))`.

    Each has the verdict of the gate, if there was one: what it did not promote is skipped, not trained.

    Args:
        outcome: What a `SweepOperator` or a `GateOperator` returned.
        k: How many; default: all that it lists.
    """
    from raysweep.step import best_trials

    return best_trials(outcome, k)
