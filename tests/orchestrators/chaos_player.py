"""One night of the stress run: it is begun, what is planned happens to it, and it is judged."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tests.orchestrators.chaos_hands import Hands
from tests.orchestrators.chaos_oracle import (
    ORPHAN_S,
    STEPS,
    Act,
    ChampionSeen,
    Line,
    NightSeen,
    StepSeen,
    lies,
    wanted,
)
from tests.orchestrators.chaos_plan import ENDINGS, OUTAGES, OWN, REFUSALS, TRIALS, Event, Name, Plan
from tests.orchestrators.chaos_site import NAME, Site
from tests.orchestrators.nights import ENDED, Night, State, Step

NIGHT_S: Final = 600.0
"""On an idle machine a night takes one to three minutes, two lost workers behind Prefect included."""
LEASES_S: Final[dict[Name, float]] = {"loop": 60.0, "prefect": 60.0, "airflow": 900.0}
"""Airflow's is longer than an orphan may live there: it has a reaper."""
LOOK_S: Final = 0.3
SETTLE_S: Final = 6.0
"""How long after the last event it is believed that nothing runs: what was on its way has come by then."""
THINK_S: Final = 8.0
"""How long a person takes at least to answer; before, Airflow itself may lose the answer."""
SILENT_S: Final = 20.0
"""After how long silence rejects, in a night in which no person answers."""
LEFT_S: Final = 30.0
"""How long after a night its processes may take to go."""
REGISTRY: Final = "tests.orchestrators.chaos_registry:Registry"
HERE: Final = "tests.orchestrators.chaos_trainables"


@dataclass(slots=True, kw_only=True)
class Result:
    """What became of a night."""

    plan: Plan
    seen: NightSeen
    lies: list[str]
    fired: list[str]
    took_s: float
    shown: str = ""
    """The orchestrator's own words about a night with lies."""
    more: str = ""
    """What else is to be said of it: how it was decided."""


@dataclass(slots=True)
class Player:
    """Plays one night."""

    site: Site
    hands: Hands
    plan: Plan
    limit_s: float = NIGHT_S
    began_at: float = field(default_factory=time.time)
    run: str = ""
    acts: list[Act] = field(default_factory=list)
    fired: list[str] = field(default_factory=list)
    outages_s: float = 0.0
    _settled_at: float = 0.0
    _asked_at: float | None = None
    _has_acted: bool = False
    _undone: list[threading.Thread] = field(default_factory=list)
    _before: set[str] = field(default_factory=set)

    def play(self) -> Result:
        """Begin it, let happen what is planned, wait for its end, and judge it."""
        site, events, deadline = self.site, list(self.plan.events), time.monotonic() + self.limit_s
        self._before, champion = site.names(), site.champion()
        begin = self.hands.begin_child if self.plan.is_child else self.hands.begin
        self.run = begin(_night(self.plan, site))
        if events and events[0].when == "submitting":
            site.to_cluster.delay_s = 0.3  # or the moment is over before it is seen
        while time.monotonic() < deadline:
            is_over = self._is_over()
            if events and self._holds(events[0], is_over=is_over) and self._fire(events[0]):
                site.to_cluster.delay_s = 0.0
                events.pop(0)
                continue
            if self.plan.answer and not (events and events[0].when == "asking"):
                self._approve()
            if is_over:
                # What waited for something earlier in the night waits in vain.
                events = [event for event in events if event.when in ("ended", "at_once")]
                events = events if events and events[0].when == "ended" else []
                if not events and self._is_quiet():
                    break
            time.sleep(LOOK_S)
        site.to_cluster.delay_s = 0.0
        for each in self._undone:
            each.join()
        return self._judge(champion)

    # --- what is seen while it continues

    def _states(self) -> dict[Step, State]:
        return {step: self.hands.state(self.run, step) for step in STEPS}

    def _is_over(self) -> bool:
        """Whether the orchestrator says so, and means it."""
        # In this order: what crashes in between is seen as it was before, and tended the next time.
        states = self._states()
        if self.hands.tend(self.run, is_wanted=self._want() == "success"):
            return False
        if self.plan.answer and self.hands.approval(self.run).state not in ENDED:
            return any(state in ("failed", "cancelled") for state in states.values())
        if self._want() == "marked" and states["train"] not in ENDED:
            return states["gate"] in ("failed", "cancelled")
        # All of them: a retry begins with the first, while the last still shows how the attempt before ended.
        is_done = all(state in ENDED for state in states.values())
        return is_done or any(state in ("failed", "cancelled") for state in states.values())

    def _want(self) -> str:
        return wanted(
            NightSeen(
                steps={}, runs=(), acts=tuple(self.acts), trials=0, clear_resumes=self.hands.clear_resumes
            )
        )

    def _step_now(self) -> Step | None:
        """The step that is on; None: the night is over."""
        states = self._states()
        if any(state in ("failed", "cancelled") for state in states.values()):
            return None
        return next((step for step in STEPS if states[step] not in ENDED), None)

    def _jobs(self) -> list[Any]:
        """Tonight's jobs, as last seen."""
        return [
            info
            for job_id, info in list(self.site.jobs.known.items())
            if job_id.rpartition(".")[0] not in self._before
        ]

    def _running(self) -> list[Any]:
        self.site.jobs.look()
        return [info for info in self._jobs() if not info.is_ended]

    def _is_quiet(self) -> bool:
        return time.time() > self._settled_at and not self._running()

    def _lines(self) -> tuple[tuple[Line, ...], dict[str, list[float]]]:
        return self.site.lines(self.began_at)

    def _holds(self, event: Event, *, is_over: bool) -> bool:
        """Whether it is time for this event."""
        if event.when == "at_once":
            return True
        if event.when == "ended":
            return is_over and self._is_quiet()
        if is_over:
            return False
        if event.when == "asking":
            return self.hands.is_asked(self.run)
        if event.when == "submitting":
            return self.hands.state(self.run, "sweep") == "running"
        trials, trained = self._lines()
        if event.when == "started":
            return any(line.word == "start" for line in trials)
        if event.when == "half":
            return len({line.number for line in trials if line.word == "end"}) >= TRIALS / 2
        if event.when == "gating":
            sweeps = {
                info.job_id.rpartition(".")[0]
                for info in self._jobs()
                if info.metadata.get("raysweep_kind") == "sweep"
            }
            return len(sweeps) > 1
        return bool(trained["train"])

    # --- what happens

    def _fire(self, event: Event) -> bool:
        """Let it happen; False: there is nothing yet that it could happen to."""
        what, _, name = event.what.partition(":")
        step = self._step_now()
        if what in ENDINGS or what == "clear":
            if what == "clear":
                self._stopped(is_waited_for=event.when == "ended")
            if (step is None and what != "clear") or not self._act(what, step or "train"):
                return False
        elif what in OUTAGES:
            self._cut(what, event.lasts_s)
        elif what == "rotate_token":
            self.site.rotate_token()
            self.hands.take_token(self.site.behind, event.lasts_s)
            self.outages_s += event.lasts_s
        elif what in ("restart", "kill", "orphan"):
            self._later(lambda: self.hands.server(what, name, event.lasts_s), event.lasts_s)
        elif what in OWN[self.plan.orchestrator]:
            if event.when == "ended" and self.acts:
                step = self.acts[-1].step
            if step is None or not self.hands.befall(what, self.run, step, self.site, event.lasts_s):
                return False
            self.outages_s += event.lasts_s
        elif step is None or not self._kill(what, step, event.lasts_s):
            return False
        self.fired.append(event.what)
        self._settled_at = time.time() + event.lasts_s + SETTLE_S
        return True

    def _act(self, what: str, step: Step) -> bool:
        if what == "clear":
            self.site.hold.unlink(missing_ok=True)
        else:
            self.site.hold.touch()
        if what == "stop_job":
            running = self._running()
            if not running:
                return False
            self.site.cluster.ask(lambda client: client.stop(running[-1].job_id))
        else:
            self.hands.act(what, self.run, step)
        self.acts.append(Act(what=what, step=step, at=time.time()))
        return True

    def _approve(self) -> None:
        """Answer as the person of this night does, whenever a question has been there for long enough."""
        if self.plan.answer == "silence":
            return
        if not self.hands.is_asked(self.run):
            self._asked_at = None
            return
        self._asked_at = self._asked_at or time.monotonic()
        if time.monotonic() - self._asked_at < THINK_S:
            return
        self._asked_at = None
        is_first, self._has_acted = not self._has_acted, True
        if self.plan.answer == "cleared" and is_first:
            self.hands.clear_approval(self.run)
        elif self.plan.answer == "twice":
            handed = self.hands.given(self.run, "gate")
            assert handed is not None, "the gate has handed on what the person is asked about"
            self.site.decide(handed, approved=True)
            self.hands.answer(self.run, approved=False)
        elif self.plan.answer == "restarted" and is_first:
            self._later(lambda: self.hands.server("kill", "scheduler", SETTLE_S), SETTLE_S)
            time.sleep(1.0)  # it is away
            self.hands.answer(self.run, approved=True)
        else:
            self.hands.answer(self.run, approved=self.plan.answer not in REFUSALS)

    def _stopped(self, *, is_waited_for: bool) -> None:
        """Note since when nothing runs of what a person has ended last."""
        if is_waited_for and self.acts and self.acts[-1].what in ENDINGS:
            last = self.acts[-1]
            ends = [
                info.ended_at or 0.0
                for info in self._jobs()
                if self.site.step_of(info.job_id.rpartition(".")[0]) == last.step
            ]
            self.acts[-1] = dataclasses.replace(last, stopped_at=max(ends, default=None))

    def _cut(self, what: str, lasts_s: float) -> None:
        how, _, where = what.partition("_")
        proxy = self.site.to_cluster if where == "cluster" else self.site.to_storage
        (proxy.cut if how == "cut" else proxy.stall)()
        self._later(lambda: (time.sleep(lasts_s), proxy.restore()), lasts_s)

    def _kill(self, what: str, step: Step, lasts_s: float) -> bool:
        site = self.site
        if what == "kill_step":
            return self.hands.kill(self.run, step)
        if what == "kill_head":
            site.head.kill()
            site.jobs.lose()
            self._later(lambda: (time.sleep(lasts_s), site.head.start()), lasts_s + 15)
            return True
        if what == "kill_driver":
            pids = site.cluster.drivers()
        else:
            trials, _ = self._lines()
            ended = {(line.run_id, line.number) for line in trials if line.word == "end"}
            pids = [line.pid for line in trials if (line.run_id, line.number) not in ended][-1:]
        return sum(map(_kill, pids)) > 0

    def _later(self, undo: Callable[[], Any], lasts_s: float) -> None:
        self.outages_s += lasts_s
        thread = threading.Thread(target=undo, daemon=True)
        thread.start()
        self._undone.append(thread)

    # --- the end

    def _judge(self, champion: ChampionSeen) -> Result:
        site, want = self.site, self._want()
        running = self._running()
        left = site.left(LEFT_S if not running else min(ORPHAN_S, _lease_s(self.plan)) + LEFT_S)
        if running:
            running = self._running()
        self._stopped(is_waited_for=not running)
        site.hold.unlink(missing_ok=True)
        states = self._states()
        trials, trained = self._lines()
        ends = [info.ended_at or 0.0 for info in self._jobs()]
        shown_by = {step: self._given(step) if states[step] == "success" else None for step in STEPS}
        seen = NightSeen(
            steps={step: StepSeen(state=states[step], handed_on=shown_by[step]) for step in STEPS},
            runs=tuple(site.run(run_id) for run_id in sorted(site.names() - self._before)),
            acts=tuple(self.acts),
            trials=TRIALS,
            clear_resumes=self.hands.clear_resumes,
            before=champion,
            after=site.champion(),
            approval=site.approval(self.plan.answer, self.hands.approval(self.run))
            if self.plan.answer
            else None,
            lines=trials,
            trained=tuple(trained["trained"]),
            left=left,
            quiet_at=max(ends, default=self.began_at) if not running else None,
            outages_s=self.outages_s,
        )
        found = [*lies(seen), *self.hands.more_lies(self.run)]
        result = Result(
            plan=self.plan, seen=seen, lies=found, fired=self.fired, took_s=time.time() - self.began_at
        )
        result.more = self.hands.summary(self.run)
        if found:
            texts = [f"--- {step} ({want})\n{self.hands.message(self.run, step)}" for step in STEPS]
            result.shown = "\n".join(texts)
        if left or running:
            site.cluster.stop_what_runs()
        return result

    def _given(self, step: Step) -> dict[str, Any] | None:
        given = self.hands.given(self.run, step)
        if given is None:
            return None
        best = given.get("best") or given
        return {"status": given.get("status"), "x": (best.get("config") or {}).get("x")}


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _lease_s(plan: Plan) -> float:
    return LEASES_S[plan.orchestrator]


def _night(plan: Plan, site: Site) -> Night:
    """What the orchestrator is asked to run."""
    common = {"log": str(site.log), "hold": str(site.hold)}
    space = {
        "x": {"uniform": [plan.level, plan.level + 1.0]},
        "steps": 2,
        "pause": 0.8,
    } | common
    sweep = {
        "name": NAME,
        "trainable": f"{HERE}:trial",
        "param_space": space,
        "metric": "loss",
        "mode": "min",
        "search": "random",
        "seed": plan.night,
        "num_samples": TRIALS,
        "storage_path": site.storage,
    }
    training: dict[str, Any] = {
        "name": "full",
        "trainable": f"{HERE}:train",
        "config": {"pause": 2.0, **common},
        "scaling": {"num_workers": 1},
        "storage_path": site.storage,
    }
    gate = {"confirm_top_k": 1, "seeds": 1, "test": "mean"}
    asked: dict[str, Any] = {}
    if plan.answer:
        approval = {"timeout": SILENT_S if plan.answer == "silence" else 3600.0, "on_silence": "reject"}
        asked = {"approval": approval, "registry": {REGISTRY: {"file": str(site.registry)}}}
        training["config"] = {**training["config"], "has_model": True}
    job = {"lease_ttl_s": _lease_s(plan)}
    return Night(sweep=sweep, train=training, gate=gate, retries=8, job=job, **asked)
