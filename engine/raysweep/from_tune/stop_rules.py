"""Functions and stoppers of the user's own as `stop` of a tuner: asked in the trial's process, per report.

A trial for which one answers True ends with that report, completed, as in Tune.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from raysweep.documents.code.tune_objects import STOP_RULES, is_tune_class

Rule = Callable[[str, dict[str, Any]], bool]
"""Of a trial's id and a result: whether the trial ends."""


def ends_no_experiment(stopper: Any) -> bool:
    """True if it has no `stop_all`, or one that is `return False`."""
    if not hasattr(stopper, "stop_all"):
        return True
    code = getattr(type(stopper).stop_all, "__code__", None)
    texts = {getattr(type(stopper).stop_all, "__doc__", None)}
    # By its constants: the stopper may come from anywhere, and asking it once says nothing of later.
    return code is not None and not code.co_names and (set(code.co_consts) - texts) | {None} == {None, False}


def with_rules(trainable: Any, rules: tuple[Rule, ...]) -> Any:
    """The trainable, whose reports are judged by the rules."""
    return _class_with(trainable, rules) if is_tune_class(trainable) else _function_with(trainable, rules)


def _function_with(trainable: Any, rules: tuple[Rule, ...]) -> Any:
    @functools.wraps(trainable, updated=("__dict__",) if hasattr(trainable, "__dict__") else ())
    def inner(config: dict[str, Any]) -> Any:
        return trainable(config)

    setattr(inner, STOP_RULES, rules)
    return inner


def _class_with(cls: type[Any], rules: tuple[Rule, ...]) -> type[Any]:
    def train(self: Any) -> dict[str, Any]:
        result: dict[str, Any] = cls.train(self)
        if any(rule(self.trial_id, result) for rule in rules):
            result["done"] = True
        return result

    return type(
        cls.__name__, (cls,), {"train": train, "__module__": cls.__module__, "__qualname__": cls.__qualname__}
    )
