"""Classes and functions as users of Ray Tune write them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ray import tune


def note(config: dict[str, Any], word: str) -> None:
    with Path(config["log"]).open("a") as file:
        file.write(f"{word} {os.getpid()}\n")


class Counter(tune.Trainable):
    """Counts; with `dies_at` it dies there, once."""

    def setup(self, config: dict[str, Any]) -> None:
        note(config, "setup")
        self.total = 0.0

    def step(self) -> dict[str, Any]:
        self.total += self.config["by"]
        marker = Path(self.config["log"] + ".died")
        if self.iteration + 1 == self.config.get("dies_at") and not marker.exists():
            marker.touch()
            if self.config.get("how") == "kill":
                os.kill(os.getpid(), 9)
            raise RuntimeError("once")
        return {
            "total": self.total,
            "nested": {"half": self.total / 2},
            "timesteps_this_iter": 10,
            "done": self.iteration + 1 >= self.config["steps"],
        }

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        note(self.config, f"save@{self.iteration}")
        if self.config.get("as_dict"):
            return {"total": self.total}
        Path(checkpoint_dir, "total").write_text(str(self.total))
        return None

    def load_checkpoint(self, checkpoint: Any) -> None:
        note(self.config, f"load@{self.iteration}")
        is_dict = isinstance(checkpoint, dict)
        self.total = checkpoint["total"] if is_dict else float(Path(checkpoint, "total").read_text())

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        note(new_config, "reset")
        self.total = 0.0
        return bool(new_config.get("resets", True))

    def cleanup(self) -> None:
        note(self.config, "cleanup")


class WithoutSave(tune.Trainable):
    def step(self) -> dict[str, Any]:
        return {"total": 1.0, "done": True}


class DirtyEnd(Counter):
    def cleanup(self) -> None:
        raise OSError("the cleanup fails")


class AsksItself(Counter):
    def step(self) -> dict[str, Any]:
        return {**super().step(), "should_checkpoint": self.iteration == 1}
