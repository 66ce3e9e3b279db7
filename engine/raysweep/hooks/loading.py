"""The callbacks of a spec: checked before a sweep starts, and made in the process that calls them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

from raysweep.documents.code.plugins import Plugins
from raysweep.documents.kinds import CLASS_EXAMPLE
from raysweep.errors import SpecError
from raysweep.hooks.base import Callback, CallbackOptions, CallbackSetup, TrialSetup
from raysweep.hooks.events import HOOKS
from raysweep.hooks.spec import CallbackSpec, is_tune_callback

PLUGINS: Final[Plugins[Callback]] = Plugins("callbacks", Callback, "raysweep.hooks", accepts=is_tune_callback)


class Called(Protocol):
    """The fields that callbacks are loaded for: `SweepSpec` has them."""

    @property
    def callbacks(self) -> tuple[CallbackSpec, ...]:
        """The callbacks."""
        ...

    @property
    def storage_path(self) -> str:
        """The storage path of the sweep."""
        ...


def load_callbacks(spec: Called) -> None:
    """See that each callback of a spec can be used here.

    Raises:
        SpecError: a class cannot be imported, is no callback or does not take its options; a tracker lacks
            its package or its address; an object cannot be sent to another process.
    """
    if spec.callbacks and spec.storage_path.startswith("memory:"):
        what = "require a storage that another process can read, and memory:// is of this process alone"
        raise SpecError("callbacks", what, "give a storage_path on disk or in an object store")
    for callback in spec.callbacks:
        if isinstance(callback.options, CallbackOptions):
            callback.options.check(spec.storage_path)
        elif callback.held is not None:
            pickled(callback)
        else:
            _load(callback)


def pickled(callback: CallbackSpec) -> bytes:
    """An object, for the process that calls it. Raises: SpecError."""
    import cloudpickle

    try:
        return cast(bytes, cloudpickle.dumps(callback.held))
    except Exception as error:  # noqa: BLE001  whatever the object's own pickling raises
        what = f"{type(callback.held).__name__} cannot be sent to the process that calls it: {error}"
        raise SpecError("callbacks", what, "have it open files and connections in its first method") from None


def make_callback(callback: CallbackSpec, setup: CallbackSetup) -> Callback:
    """The callback, behind raysweep's hooks. Raises whatever the callback raises."""
    if isinstance(callback.options, CallbackOptions):
        return callback.options.make(setup)
    made: Any = callback.held
    if made is None:
        found = _load(callback)
        options = callback.options.model_dump()
        made = (
            found(**options)
            if is_tune_callback(found)
            else PLUGINS.make(callback.kind, callback.options, setup)
        )
    if isinstance(made, Callback):
        return made
    from raysweep.hooks.tune_callback import TuneCallback

    return TuneCallback(made, setup)


def names_of(callbacks: Sequence[CallbackSpec]) -> list[str]:
    """A name for each, by which its place in the journal is stored: `mlflow`, `mlflow-2`, `Mine`."""
    names: list[str] = []
    for callback in callbacks:
        base = callback.kind.rpartition(":")[2].replace(".", "-").replace("<", "").replace(">", "")
        count = sum(each == base or each.rpartition("-")[0] == base for each in names)
        names.append(base if not count else f"{base}-{count + 1}")
    return names


def variables_of(callbacks: Sequence[CallbackSpec], setup: TrialSetup) -> dict[str, str]:
    """The environment variables of the trials, of all trackers together."""
    found: dict[str, str] = {}
    for callback in callbacks:
        if isinstance(callback.options, CallbackOptions):
            found |= callback.options.in_trials(setup)
    return found


def openers_of(callbacks: Sequence[CallbackSpec]) -> tuple[str, ...]:
    """The openers of a trial's runs at trackers before it begins: see `CallbackOptions.opener`."""
    options = [each.options for each in callbacks if isinstance(each.options, CallbackOptions)]
    return tuple(each.opener for each in options if each.opener)


def _load(callback: CallbackSpec) -> type:
    found = PLUGINS.load(callback.kind)
    if is_tune_callback(found):
        return found
    if all(getattr(found, name) is getattr(Callback, name) for name in HOOKS.values()):
        hooks = ", ".join(HOOKS.values())
        raise SpecError(
            "callbacks", f"{callback.kind!r} has no method", f"give it one of {hooks}: {CLASS_EXAMPLE}"
        )
    PLUGINS.check_options(callback.kind, callback.options)
    return found
