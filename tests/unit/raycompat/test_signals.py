"""Ray sets no handlers of signals while it starts, and is left as it was."""

from __future__ import annotations

import inspect
import signal

from ray._private import node, utils, worker

from raysweep.raycompat.signals import handlers_kept


def test_ray_sets_no_handler_in_here() -> None:
    before, sets = signal.getsignal(signal.SIGTERM), utils.set_sigterm_handler
    with handlers_kept():
        utils.set_sigterm_handler(lambda number, frame: None)  # type: ignore[no-untyped-call]
        assert signal.getsignal(signal.SIGTERM) == before
    assert utils.set_sigterm_handler is sets


def test_ray_sets_them_by_what_is_replaced() -> None:
    for module in (worker.init, node.Node._register_shutdown_hooks):
        assert "ray._private.utils.set_sigterm_handler(" in inspect.getsource(module)
