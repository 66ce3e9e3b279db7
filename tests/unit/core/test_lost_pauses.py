"""A trial that is lost as it pauses, with the checkpoint that it was about to store."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from tests.unit.core.sweep import Sweep, running, stop_trial
from tests.unit.core.toys import DIED, NODE_DIED

PBT = {"pbt": {"perturbation_interval": 1, "synch": True, "max_t": 3, "quantile_fraction": 0.5}}


def pausing(scheduler: Any = PBT, **fields: Any) -> Sweep:
    """Of two trials the first is the better one, and is asked to pause; the second has paused."""
    sweep = running(2, scheduler=scheduler, **fields)
    sweep.report(1, 0.9)
    sweep.stopped(1)
    assert sweep.report(0, 0.1) == [stop_trial(0, 0, "pause")]
    return sweep


def lose(sweep: Sweep) -> None:
    """The controller is killed: another one begins, with slots of its own."""
    sent = sweep.start(generation=2)
    sent += sweep.send(ev.CapacityChanged, slots=2)
    for slot in [each.slot for each in sent if isinstance(each, cmd.OpenSlot)]:
        sweep.send(ev.SlotOpened, slot=slot, node="n")


def test_of_a_population_it_makes_the_step_again_so_that_others_can_go_on_from_it() -> None:
    sweep = pausing()
    lose(sweep)
    assert sweep.state.trials[0].attempts[0].end == "lost"
    assert (sweep.trial_state(0), sweep.trial_state(1)) == ("queued", "paused"), "the others wait for it"
    sweep.began(0, 2)
    (stop,) = sweep.report(0, 0.1, attempt=2)
    assert isinstance(stop, cmd.StopTrial)
    assert stop.reason == "pause"
    number = sweep.state.trials[0].results.next_checkpoint
    sweep.saved(0, number, report=0, attempt=2)
    sweep.stopped(0, 2)
    assert sweep.state.trials[0].attempts[1].end == "paused"
    origin = sweep.state.trials[1].ancestry.origin
    assert origin is not None
    assert origin.uri == f"mem://0/{number}"


def test_with_its_checkpoint_it_has_paused() -> None:
    sweep = pausing()
    sweep.saved(0, 0, report=0)
    lose(sweep)
    assert sweep.state.trials[0].attempts[0].end == "paused"


def test_where_no_trial_goes_on_from_others_it_has_paused_without() -> None:
    sweep = running(2, 17, scheduler={"hyperband": {"max_t": 9, "reduction_factor": 3}})
    sweep.report(0, 0.1)
    assert sweep.trial_state(0) == "stopping"
    lose(sweep)
    assert sweep.state.trials[0].attempts[0].end == "paused"


@pytest.mark.parametrize("how", ["it dies", "its node dies"])
def test_one_that_dies_by_itself_as_it_pauses_is_not_run_again_and_again(how: str) -> None:
    sweep = pausing()
    if how == "it dies":
        sweep.failed(0, DIED)
    else:
        sweep.send(ev.SlotLost, slot=0, failure=NODE_DIED)
    assert sweep.state.trials[0].attempts[0].end == "paused"
