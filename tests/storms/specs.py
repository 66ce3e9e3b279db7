"""Storms drawn from a seed: a valid spec, the acts of its trials, kills, clocks, deletions, a follow-up."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, Literal

from tests.storms import acts, hooks

Spec = dict[str, Any]
Deletion = Literal["", "folder", "journal", "first segments", "checkpoints", "sweep.json", "blobs"]
EXPLOITING: Final = ("pbt", "pb2")
SCHEDULERS: Final = (
    *["fifo"] * 5, "asha", "asha", "promotion", "delayed", "pasha", "median", "hyperband", "pbt",
    "pbt", "pb2", "moasha",
)  # fmt: skip
SEARCHES: Final = (
    *["random"] * 4, "tpe", "tpe", "auto", "cma_es", "nsga2", "gp",
)  # fmt: skip
STRAYS: Final = ("stray thread", "stray thread, then raises", "stray checkpoint", "report after the end")
MARKS: Final = ("chdir", "environ", "itimer", "signal handlers", "logging handler", "numpy errors", "umask")
LEFTOVERS: Final = ("child", "child in its own session", "daemon", "forked sleeper")


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """One storm. `kills`: after how many seconds each controller is killed, and whether others die before."""

    seed: int
    number: int
    spec: Spec
    cpus: tuple[int, ...]
    kills: tuple[tuple[float, bool], ...] = ()
    worker_kills: tuple[float, ...] = ()
    happenings: tuple[tuple[float, str, int], ...] = ()
    jump: tuple[float, float] | None = None
    deletion: Deletion = ""
    deleted_after_s: float = 0.0
    on_progress: str = ""
    follow_up: Spec = field(default_factory=dict)
    has_bad_hook: bool = False

    @property
    def plan(self) -> Spec:
        """What its trials go by."""
        plan: Spec = self.spec["param_space"]["plan"]["const"]
        return plan

    @property
    def isolation(self) -> str:
        """Where its trials run."""
        return str(self.spec["isolation"])

    @property
    def scheduler(self) -> str:
        """The name of its scheduler."""
        chosen = self.spec["scheduler"]
        return chosen if isinstance(chosen, str) else str(next(iter(chosen)))

    @property
    def evaluates(self) -> bool:
        """Whether its checkpoints are evaluated apart."""
        return "evaluate" in self.spec

    @property
    def exploits(self) -> bool:
        """Whether its trials continue from one another's checkpoints."""
        return self.scheduler in EXPLOITING

    def told(self) -> str:
        """In one line, what it is."""
        said = [self.scheduler, self.isolation, str(self.spec["search"])[:24]]
        said += ["pairs"] if self.plan["pairs"] else []
        said += ["evaluates"] if self.evaluates else []
        said += [f"kills {len(self.kills)}"] if self.kills else []
        said += [f"clock {self.jump[1]:+.0f} s"] if self.jump else []
        said += [f"deletes {self.deletion}"] if self.deletion else []
        said += ["bad hook"] if self.has_bad_hook else []
        said += [f"then {self.follow_up}"] if self.follow_up else []
        return ", ".join(said)


def draw_storm(seed: int, number: int, folder: Path, *, evaluates: bool = False) -> Storm:
    """Storm `number` of a seed; `evaluates`: its checkpoints are evaluated apart, where that can be."""
    storm = _draw_storm(seed, number, folder)
    if evaluates:
        _evaluate(Random(f"{seed}:{number}:evaluate"), storm)
    return storm


def _evaluate(rng: Random, storm: Storm) -> None:
    """Have the checkpoints of a storm evaluated by `zoo.judge`: some die, some raise, some are slow.

    What cannot be combined with that is left out; a gang and a sweep in its own process stay as they are.
    """
    spec, plan = storm.spec, storm.plan
    if storm.isolation == "inline" or "scaling" in spec:
        return
    spec.get("checkpoint", {}).pop("upload", None)
    spec["stop"].pop("trial_time_s", None)
    spec["evaluate"] = {
        "trainable": "tests.storms.zoo:judge",
        "resources": {"cpu": 0, "memory": 1_000_000},  # trials have the CPUs
        "slots": rng.choice([1, 1, 2]),
        "every": rng.choice([1, 1, 1, 2]),
        "ahead": rng.choice([0, 1, 1, 3]),
        "tries": rng.choice([1, 2, 3]),
    }
    if rng.random() < 0.2:
        spec["evaluate"]["timeout_s"] = 0.5
    plan["every"] = plan["every"] or 1
    plan["judge_s"] = rng.choice([0, 0.02, 0.1, 0.3])
    plan["judge_fails"] = rng.choice([0.0, 0.1, 0.3])
    plan["judges_metric"] = spec["evaluate"]["every"] == 1 and spec["metric"] == "loss" and rng.random() < 0.5


def _draw_storm(seed: int, number: int, folder: Path) -> Storm:
    rng = Random(f"{seed}:{number}")
    if rng.random() < 0.12:
        return _bad_hook(rng, seed, number, folder)
    if rng.random() < 0.08:
        return _tight(rng, seed, number, folder)
    isolation = rng.choices(["worker", "process", "actor", "inline"], [55, 22, 8, 15])[0]
    is_pair = rng.random() < 0.35
    spec = _draw_spec(rng, isolation, is_pair)
    plan = _draw_plan(rng, spec, seed, number, folder, is_pair)
    spec["param_space"]["plan"] = {"const": plan}
    jump = (rng.uniform(0.0, 1.5), rng.choice([-3600.0, 3600.0])) if rng.random() < 0.2 else None
    if jump is not None and not is_pair:
        _give_time_to_pass(rng, spec, plan)
    spec["storage_path"] = str(folder / "storage")
    is_inline = isolation == "inline"
    two_nodes = not is_inline and not is_pair and rng.random() < 0.25
    deletion: Deletion = ""
    if rng.random() < 0.12:
        deletion = rng.choice(["folder", "journal", "first segments", "checkpoints", "sweep.json", "blobs"])
    kills = () if is_pair and rng.random() < 0.6 else _draw_kills(rng)
    return Storm(
        seed=seed,
        number=number,
        spec=spec,
        cpus=(2, 2) if two_nodes else (2,),
        kills=() if deletion else kills,
        worker_kills=()
        if is_inline
        else tuple(rng.uniform(0, 2) for _ in range(rng.choice([0, 0, 0, 1, 2]))),
        happenings=_draw_happenings(rng) if two_nodes else (),
        jump=jump,
        deletion=deletion,
        deleted_after_s=rng.uniform(0.1, 1.5),
        follow_up=rng.choice([{}, {"retry": "failed"}, {"extend": {"top": 2, "max_t": 12}}, {"more": 3}]),
    )


def _give_time_to_pass(rng: Random, spec: Spec, plan: Spec) -> None:
    """Have something wait for a time when the clock jumps: a limit, a back-off, a trial that hangs."""
    waiting = ["raises once"] if spec["isolation"] == "inline" else ["raises once", "hangs", "SIGKILL"]
    plan |= {"acts": waiting, "share": 0.5, "acts_at": 1, "sleep_s": max(plan["sleep_s"], 0.05)}
    spec["failure"] |= {
        "max_failures": 1,
        "max_worker_deaths": 1,
        "backoff_initial_s": rng.choice([0.1, 1.0]),
    }
    spec["failure"]["backoff_max_s"] = 1.0
    if rng.random() < 0.5:
        spec["stop"]["time_budget_s"] = 600.0
        spec["stop"].pop("budget", None)


def _draw_kills(rng: Random) -> tuple[tuple[float, bool], ...]:
    delays = (0.02, 0.1, 0.3, 0.6, 1.2)
    return tuple((rng.choice(delays), rng.random() < 0.3) for _ in range(rng.choice([0, 0, 1, 1, 2, 3])))


def _draw_happenings(rng: Random) -> tuple[tuple[float, str, int], ...]:
    found: list[tuple[float, str, int]] = []
    for _ in range(rng.choice([0, 1, 2])):
        at = rng.uniform(0.2, 2.0)
        found.append((at, rng.choice(["kill", "kill", "drain"]), rng.randrange(4)))
        found.append((at + rng.choice([0.0, 0.5, 1.5]), "add", 2))
    return tuple(found)


def _tight(rng: Random, seed: int, number: int, folder: Path) -> Storm:
    """A time budget that is over soon after the last trials: each is asked to end, and ends by itself before.

    The ask comes with its only checkpoint, after 0.5 s: the next one would be too late for the budget.
    """
    spec = _plain_spec(rng, number, folder)
    width = 2 if spec["isolation"] == "worker" else 1
    spec |= {"num_samples": width, "max_concurrent_trials": width}
    spec["stop"] |= {"time_budget_s": rng.uniform(1.7, 2.4)}
    plan = _draw_plan(rng, spec, seed, number, folder, False)
    plan |= {"acts": [], "steps": 1, "sleep_s": 0.5, "tail_s": 0.3, "every": 1}
    spec["param_space"]["plan"] = {"const": plan}
    return Storm(seed=seed, number=number, spec=spec, cpus=(2,))


def _plain_spec(rng: Random, number: int, folder: Path) -> Spec:
    return {
        "name": "storm",
        "trainable": "tests.storms.zoo:train",
        "metric": "loss",
        "mode": "min",
        "seed": number,
        "param_space": {"x": {"uniform": [0, 1]}},
        "num_samples": 6,
        "scheduler": "fifo",
        "search": "random",
        "isolation": rng.choice(["worker", "inline"]),
        "max_concurrent_trials": 1,
        "storage_path": str(folder / "storage"),
        "stop": {"grace_s": 1.0},
        "failure": {"backoff_initial_s": 0.1, "max_failures": 0, "breaker_trials": 0},
    }


def _bad_hook(rng: Random, seed: int, number: int, folder: Path) -> Storm:
    """A plain sweep, one of whose hooks raises what is no Exception."""
    where = rng.choice(["search", "search", "search", "trial_if", "on_progress"])
    spec = _plain_spec(rng, number, folder)
    if where == "search":
        options = {"raises": rng.choice(list(hooks.KINDS)), "where": rng.choice(["ask", "tell"])}
        options |= {"at": rng.choice([1, 2, 4]), "is_adaptive": rng.random() < 0.7}
        spec["search"] = {"tests.storms.hooks:BadSearcher": options}
    elif where == "trial_if":
        spec["stop"]["trial_if"] = "tests.storms.hooks:stops_badly"
    spec["param_space"]["plan"] = {"const": _draw_plan(rng, spec, seed, number, folder, False) | {"acts": []}}
    on_progress = rng.choice(list(hooks.ON_PROGRESS)) if where == "on_progress" else ""
    return Storm(
        seed=seed, number=number, spec=spec, cpus=(2,), on_progress=on_progress, has_bad_hook=True
    )  # fmt: skip


def _draw_plan(
    rng: Random, spec: Spec, seed: int, number: int, folder: Path, is_pair: bool
) -> dict[str, Any]:
    known = [*acts.ANYWHERE, *acts.AT_THE_END]
    if spec["isolation"] != "inline":
        known += acts.IN_A_WORKER
    if is_pair:
        left = LEFTOVERS if spec["isolation"] != "inline" else ()
        marks = MARKS if spec["isolation"] != "inline" else ()
        known = [rng.choice([*STRAYS, *STRAYS, *marks, *left, rng.choice(known)])]
    is_limited = "time_budget_s" in spec["stop"] and not is_pair
    is_exploiting = any(name in spec["scheduler"] for name in EXPLOITING)
    return {
        "seed": seed * 100_000 + number,
        "log": str(folder / "log"),
        "steps": rng.choice([1, 2, 3, 5, 8]) if not is_pair else rng.choice([3, 5]),
        "sleep_s": rng.choice([0, 0.01, 0.05, 0.15]) if not is_pair else rng.choice([0.02, 0.08]),
        "tail_s": rng.choice([0, 0.5, 0.8] if is_limited else [0, 0, 0, 0.4]),
        "every": rng.choice([0, 1, 1, 2]),
        "waits": rng.random() < 0.5,
        "new_folder": rng.random() < 0.5,
        "pad": rng.choice([1, 100, 10_000]),
        "share": rng.choice([0.0, 0.15, 0.3, 0.5]),
        "pairs": is_pair,
        "acts_at": 0,
        "acts": known,
        "exploits": is_exploiting,
    }


def _draw_spec(rng: Random, isolation: str, is_pair: bool) -> Spec:
    scheduler = "fifo" if is_pair else rng.choice(SCHEDULERS)
    search = "random" if scheduler in EXPLOITING else rng.choice(SEARCHES)
    metric, mode = ("loss", "min") if rng.random() < 0.7 else ("acc", "max")
    space: Spec = {"x": {"uniform": [0, 1]}, "lr": {"loguniform": [1e-4, 1]}, "k": {"randint": [1, 9]}}
    if rng.random() < 0.3:
        space["opt"] = {"choice": ["sgd", "adam", "rms"]}
    if rng.random() < 0.2:
        space["model"] = {
            "choice": {"svm": {"c": {"uniform": [0, 1]}}, "tree": {"depth": {"randint": [1, 9]}}}
        }
    spec: Spec = {
        "name": "storm",
        "trainable": "tests.storms.zoo:train",
        "param_space": space,
        "metric": metric,
        "mode": mode,
        "seed": rng.randrange(1000),
        "scheduler": _scheduler(rng, scheduler),
        "search": _search(search),
        "isolation": isolation,
        "num_samples": rng.choice([4, 6]) if is_pair else rng.choice([4, 6, 8, 12]),
        "checkpoint": _draw_checkpoints(rng),
        "stop": _draw_stop(rng, metric),
        "failure": _draw_failure(rng),
    }
    _add_variants(rng, spec, scheduler, search, is_pair)
    return spec


def _scheduler(rng: Random, name: str) -> Any:
    rungs = {"max_t": 8, "reduction_factor": 2}
    interval = {"perturbation_interval": rng.choice([1, 2, 3]), "quantile_fraction": 0.5}
    return {
        "fifo": "fifo",
        "asha": {"asha": rungs},
        "promotion": {"asha": {**rungs, "type": "promotion"}},
        "delayed": {"asha": {**rungs, "type": "promotion", "delayed": True}},
        "pasha": {"pasha": rungs},
        "median": {"median_stopping": {"min_samples_required": 2, "hard_stop": rng.random() < 0.5}},
        "hyperband": {"hyperband": rungs},
        # With a pause at every interval, only `max_t` ends a trial whose checkpoint does not hold its step.
        "pbt": {"pbt": {**interval, **({"synch": True, "max_t": 8} if rng.random() < 0.5 else {})}},
        "pb2": {"pb2": interval},
        "moasha": {"moasha": rungs},
    }[name]


def _search(name: str) -> Any:
    options = {"tpe": "n_startup_trials", "gp": "n_startup_trials", "cma_es": "population_size"}
    options["nsga2"] = "population_size"
    return {name: {options[name]: 4}} if name in options else name


def _draw_checkpoints(rng: Random) -> Spec:
    found: Spec = {}
    if rng.random() < 0.5:
        found["keep_last"] = rng.choice([1, 2, 3])
    if rng.random() < 0.3:
        found["keep_best"] = rng.choice([True, False, {"metric": "acc", "mode": "max", "num": 2}])
    if rng.random() < 0.2:
        found["every_n"] = 2
    if rng.random() < 0.2:
        found["upload"] = "latest"
    return found


def _draw_stop(rng: Random, metric: str) -> Spec:
    found: Spec = {"grace_s": rng.choice([0.5, 1.0])}
    if rng.random() < 0.25:
        found["time_budget_s"] = rng.choice([*(rng.uniform(0.8, 3.5) for _ in range(4)), 600.0])
    if rng.random() < 0.15:
        found["trial_time_s"] = rng.choice([1.0, 2.0, 3.0])
    if rng.random() < 0.1:
        found["budget"] = {"cpu_hours": rng.choice([3, 8]) / 3600}
    if rng.random() < 0.1:
        found["target"] = 0.05 if metric == "loss" else 0.97
    if rng.random() < 0.1:
        found["plateau"] = {"window": 4, "min_improvement": 0.0}
    if rng.random() < 0.15:
        found["trial"] = rng.choice([{"training_iteration": 2}, {"loss": {"above": 0.8}}])
    if rng.random() < 0.15:
        found["trial_patience"] = {"reports": 2}
    if rng.random() < 0.1:
        found["trial_if"] = "tests.storms.hooks:stops"
    return found


def _draw_failure(rng: Random) -> Spec:
    found: Spec = {
        "max_failures": rng.choice([0, 1, 2]),
        "max_worker_deaths": rng.choice([0, 1, 2]),
        "backoff_initial_s": 0.1,
        "backoff_max_s": 0.3,
        "breaker_trials": rng.choice([0, 0, 3]),
        "placement_timeout_s": 30,
        "report_timeout_s": rng.choice([2.0, 3.0]),
    }
    if rng.random() < 0.3:
        found["non_finite"] = "ignore"
    if rng.random() < 0.15:
        found["max_failed_fraction"] = 0.6
    return found


def _add_variants(rng: Random, spec: Spec, scheduler: str, search: str, is_pair: bool) -> None:
    """What goes with some schedulers and searches only."""
    isolation, stop = spec["isolation"], spec["stop"]
    is_plain = scheduler == "fifo" and not is_pair
    if is_plain and rng.random() < 0.2:
        spec["repeat"] = rng.choice([2, {"times": 4, "race": "wilcoxon"}])
        spec["num_samples"] = 4
        stop.pop("target", None), stop.pop("plateau", None)
    elif scheduler == "moasha" or (is_plain and rng.random() < 0.15):
        spec["metric"], spec["mode"] = ["loss", "cost"], ["min", "min"]
        stop.pop("target", None), stop.pop("plateau", None)
        if search in ("auto", "gp", "cma_es"):
            spec["search"] = "random"
    if is_plain and "repeat" not in spec and rng.random() < 0.15:
        spec["constraints"] = ["acc >= 0.3"]
    if rng.random() < 0.15:
        spec["where"] = rng.choice([["x + lr <= 1.2"], ["x > 0.1 or k >= 3"]])
    if rng.random() < 0.2:
        spec["score"] = "best"
    if isolation == "inline":
        spec["max_concurrent_trials"] = 1
        if scheduler in EXPLOITING:
            spec["isolation"] = "worker"
            del spec["max_concurrent_trials"]
    elif is_pair:
        spec["max_concurrent_trials"] = 1
    elif scheduler not in EXPLOITING and rng.random() < 0.3:
        spec["max_concurrent_trials"] = rng.choice([1, 2])
    if is_plain and isolation in ("worker", "process") and rng.random() < 0.12:
        spec["scaling"] = {"num_workers": 2, "resources": {"cpu": 1}}
        stop.pop("budget", None)
    elif isolation != "inline" and not is_pair and rng.random() < 0.2:
        spec["resources"] = {"cpu": 0.5}
