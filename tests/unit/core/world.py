"""A model of a sweep that continues by itself: whatever can happen happens, one thing at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raysweep.core.views.liveness import UnderWay, explain_stuck
from raysweep.core.vocabulary import events as ev
from tests.unit.core.model import SweepModel
from tests.unit.core.toys import METRIC, STEP
from tests.unit.core.workers import Worker


class World(SweepModel):
    """A sweep that is undisturbed, but for what a test does to it.

    Where nothing is under way any more, it must not be stuck (`liveness.explain_stuck`).
    """

    def value(self, trial: int, iteration: int) -> float:
        """What trial `trial` reports at `iteration`: a function of its config alone."""
        x = float(self.state.trials[trial].config["x"])  # type: ignore[arg-type]
        return round((x - 0.3) ** 2 + x / iteration, 6)

    def _in_turn(self) -> list[Worker]:
        self.turn += 1
        workers = list(self.workers.values())
        first = self.turn % max(1, len(workers))
        return workers[first:] + workers[:first]

    def work(self, worker: Worker) -> bool:
        """One step of a worker that does what it should; False: it has nothing to do."""
        if worker.outbox:
            self.now += self.tick_s
            self.deliver(worker)
        elif not worker.is_up and not worker.is_lost:
            if not self.has_place(worker):
                return False
            self.open_slot(worker)
        elif worker.inbox:
            self.take_command(worker)
        elif worker.job is None and worker.queue:
            self.begin(worker)
        elif worker.job is None or worker.job.is_waiting:
            return False
        elif worker.job.must_stop:
            self.finish(worker, "stopped")
        elif self.meets_damage(worker.job):
            worker.find_damage(self.now)
        elif worker.job.iteration >= self.length:
            self.finish(worker, "returned")
        else:
            keys = (METRIC, STEP) if self.state.rules.objective.time_attr == STEP else (METRIC,)
            self.report(worker, [self.value(worker.job.start.trial, worker.job.iteration + 1)], keys=keys)
            if self.save_every and worker.job.iteration % self.save_every == 0:
                self.save(worker)
                if worker.job.stop_reason is not None:
                    self.finish(worker, "stopped")
        return True

    def move_on(self) -> bool:
        """One thing that can happen happens; False: nothing can."""
        if self.has_left:
            return False
        if self.unflushed:
            self.flush()
        elif self.asks:
            self.answer_ask()
        elif self.is_ending and self.state.phase == "ending":
            self.send(ev.SweepEnded(at=self.now))
        elif self.timer is not None and self.timer <= self.now and self.state.phase == "running":
            self._fire_timer()
        elif any(self.work(worker) for worker in self._in_turn()):
            pass
        else:
            return self._stand_still()
        return True

    def _stand_still(self) -> bool:
        """Nothing is under way: only the clock continues. What has work and room must not get here."""
        problem = explain_stuck(self.state, UnderWay(timer_at=self.timer))
        assert not problem, f"stuck: {problem}"
        if self.timer is None or self.state.phase != "running":
            return False
        self._fire_timer()
        return True

    def _fire_timer(self) -> None:
        assert self.timer is not None
        self.now, self.timer = max(self.now, self.timer), None
        self.send(ev.TimerFired(at=self.now))

    def until(self, is_so: Callable[[], object], limit: int = 5000) -> None:
        """Continue undisturbed until something is so."""
        for _ in range(limit):
            if is_so():
                return
            assert self.move_on(), f"stuck in phase {self.state.phase}"
        raise AssertionError(f"not so after {limit} steps")

    def drain(self, limit: int = 20_000) -> None:
        """Continue undisturbed until the sweep has ended; a controller that left has a successor."""
        for _ in range(limit):
            if self.state.phase == "ended":
                return
            if not self.move_on():
                assert self.has_left, f"stuck in phase {self.state.phase}: {self.state.to_json()}"
                self.largest_bytes, self.beyond = 0, ()  # the next cluster has what this one had not
                self.crash()
        raise AssertionError(f"not ended after {limit} steps")

    def results(self) -> dict[str, Any]:
        """What an interruption must not change."""
        trials = {
            trial.number: (
                trial.state,
                trial.config,
                trial.results.last,
                trial.results.best,
                trial.results.last_score,
                trial.results.iteration,
            )
            for trial in self.state.trials.values()
        }
        return {
            "trials": trials,
            "status": self.state.end.status,
            "best": self.state.ranking.best_ended,
            "scheduler": self.state.scheduler.to_json(),
            "told": self.searcher.told,
        }
