"""What a night found, for a terminal."""

from __future__ import annotations

import shlex

from rich.console import Console

from raysweep.outcome import SweepOutcome, TrainOutcome


def print_night(
    console: Console, sweep: SweepOutcome, train: TrainOutcome | None, *, skipped: str, seconds: float
) -> None:
    """Trials, why it ended, the best, the training, where it all is, and the command to run next.

    Args:
        console: Where to.
        sweep: With the gate's verdict in it, if there was a gate.
        train: The training; None where there was none.
        skipped: Why there was none.
        seconds: What it took in all.
    """
    count = {state: sweep.counts.get(state, 0) for state in ("completed", "stopped", "failed")}
    console.print()
    console.rule(f"[bold]{sweep.name}[/] {sweep.key}")
    rows = [
        ("trials", f"{count['completed']} done, {count['stopped']} stopped early, {count['failed']} failed"),
        ("ended", sweep.why),
    ]
    if sweep.best is not None:
        config = ", ".join(f"{name}={_short(value)}" for name, value in sweep.best.config.items())
        rows += [
            (f"best {sweep.metric}", f"{sweep.best.score:.6g}  (trial {sweep.best.trial_id})"),
            ("best config", config),
        ]
    if skipped:
        rows.append(("full scale", skipped))
    if train is not None:
        metrics = ", ".join(f"{name}={_short(value)}" for name, value in train.metrics.items())
        rows += [("full scale", metrics), ("model", train.model_uri or train.uri)]
    rows += [("outcome", f"{sweep.uri}/outcome.json"), ("took", f"{seconds:.0f} s")]
    for label, text in rows:
        console.print(f"[dim]{label:>12}[/]  {text}", soft_wrap=True, highlight=False)
    storage = sweep.uri.rpartition("/")[0]
    console.print(
        f"\nNext: [bold]raysweep trials {sweep.sweep_id} --storage {shlex.quote(storage)}[/]",
        soft_wrap=True,
        highlight=False,
    )


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
