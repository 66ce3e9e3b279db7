"""Stored objects vanish while a sweep runs: an error names what is gone, or nothing that it promises is."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from raysweep.errors import CheckpointDamagedError, JournalDamagedError, SweepDamagedError
from raysweep.simulate import simulate
from raysweep.simulate.deletions import KINDS
from raysweep.simulate.kills import ControllerKilled
from raysweep.simulate.simulation import Running
from tests.unit.simulate.sweeps import Trainable, make_spec

pytestmark = pytest.mark.faults
LOOK_S = 2.0
SEEDS = 12


class Deleter:
    """Deletes objects of a kind at a moment, and kills the controller some time later, or never."""

    def __init__(self, kind: str, random: Random, *, all_of_it: bool, kills: bool) -> None:
        self.gone: list[str] = []
        self._kind = kind
        self._random = random
        self._all_of_it = all_of_it
        self._at: float | None = random.uniform(2.0, 40.0)
        self._kill_after_s = random.choice([0.1, 5.0]) if kills else None

    def __call__(self, running: Running) -> None:
        self._look(running)
        if self._at is not None:
            running.clock.after(self._at, lambda: self._delete(running))

    def _look(self, running: Running) -> None:
        if not running.controller.is_done and running.controller.state.phase != "ended":
            running.controller.look()
            running.clock.after(LOOK_S, lambda: self._look(running))

    def _delete(self, running: Running) -> None:
        self._at = None
        self.gone = running.delete(self._kind, self._random, all_of_it=self._all_of_it)
        if self._kill_after_s is not None:
            running.clock.after(self._kill_after_s, self._kill)

    def _kill(self) -> None:
        raise ControllerKilled


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_deleted_in_mid_run_is_named_or_not_needed(kind: str) -> None:
    """`is_checked`: what says that it completed is sound, and has the best trial's checkpoint."""
    ended: Counter[str] = Counter()
    for seed in range(SEEDS):
        random = Random(seed)
        deleter = Deleter(kind, random, all_of_it=seed % 2 == 0, kills=seed % 4 < 2)
        try:
            simulated = simulate(
                make_spec(num_samples=6, checkpoint={"keep_last": 2}),
                Trainable(),
                save_every=2,
                wait_every=3,
                has_snapshots=True,
                is_checked=True,
                seed=seed,
                disturb=deleter,
            )
        except (SweepDamagedError, JournalDamagedError, CheckpointDamagedError) as error:
            assert deleter.gone, f"seed {seed}: nothing was deleted"
            ended[type(error).__name__] += 1
        except Exception as error:
            error.add_note(f"seed {seed}, without {deleter.gone}")
            raise
        else:
            ended[simulated.outcome.status] += 1
    if kind == "snapshot":
        assert ended == {"completed": SEEDS}
    else:
        assert sum(ended.values()) > ended["completed"], ended
