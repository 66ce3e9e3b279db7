"""asha-wall, pbt, pbt-exploit: the same search under the same scheduler in raysweep and in Ray Tune.

All trials write what they do to one file, with the time: nothing of what is compared comes from a contender.
The same configs by number, the same steps, the same options of the scheduler; chance is each one's own.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import pickle
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

from benchmarks.contenders import scratch, use_up_idle_workers
from benchmarks.measure import (
    Contender,
    Json,
    Sample,
    alternate,
    compare_samples,
    significant,
    spread,
    target,
)
from benchmarks.notes import Note, read_notes, write_note

STEPS: Final = 27
WORST: Final = 10.0
"""No loss counts as worse than this."""
MB: Final = 1_000_000


# -- asha-wall ----------------------------------------------------------------------------------------


def run_asha(rounds: int, *, trials: int = 60, step_s: float = 0.1, steps: int = STEPS) -> Json:
    """Seconds until each has found what the worst of them found at all; other curves in each round."""
    halving, space = _halving(steps), {"step_s": step_s, "steps": steps}
    schedulers: dict[str, Json] = {
        "raysweep": {"asha": halving},
        "promotion": {"asha": {**halving, "type": "promotion"}},
        "pasha": {"pasha": halving},
    }
    contenders = [
        *(_own(name, "learn_in_raysweep", each, trials, **space) for name, each in schedulers.items()),
        _tune("tune", learn_in_tune, lambda: _tunes_asha(steps), trials, **space),
    ]
    what = f"{trials} trials of up to {steps} steps of {step_s:g} s under ASHA, 2 slots"
    return _to_best(what, contenders, rounds)


def run_asha_defaults(rounds: int, *, trials: int = 60, pause_s: float = 0.0) -> Json:
    """Each with the search that it has where nobody names one: learning of results, or random.

    `pause_s`: so much longer is a step, in which no CPU is busy, as where an accelerator computes it.
    """
    domains = {
        "lr": {"loguniform": [1e-5, 1.0]},
        "alpha": {"loguniform": [1e-8, 1.0]},
        "width": {"lograndint": [16, 256]},
        "depth": {"randint": [1, 4]},
        "batch": {"lograndint": [16, 256]},
    }
    contenders = [
        _own(
            "raysweep", "fit_in_raysweep", {"asha": _halving()}, trials, search={}, pause_s=pause_s, **domains
        ),
        _own(
            "pasha", "fit_in_raysweep", {"pasha": _halving()}, trials, search={}, pause_s=pause_s, **domains
        ),
        _tune("tune", fit_in_tune, _tunes_asha, trials, domains, pause_s=pause_s),
    ]
    each = f"up to {STEPS} epochs, each {pause_s:g} s longer" if pause_s else f"up to {STEPS} epochs"
    what = f"{trials} perceptrons on digits, {each}, under ASHA, 2 slots"
    return _to_best(what, contenders, rounds)


def run_asha_defaults_long(rounds: int, *, trials: int = 60, pause_s: float = 0.2) -> Json:
    """The same with steps that take longer than an ask."""
    return run_asha_defaults(rounds, trials=trials, pause_s=pause_s)


def _to_best(what: str, contenders: Sequence[Contender], rounds: int) -> Json:
    samples = alternate(contenders, rounds)
    for number in range(rounds):
        paired = [samples[contender.name] for contender in contenders]
        wanted = max(each[number].extra["best"] for each in paired)
        for each in paired:
            notes = each[number].notes
            found_s = next(note["at"] for note in notes if "step" in note and note["loss"] <= wanted)
            each[number] = replace(each[number], extra={**each[number].extra, "to_best_s": found_s})
    shown = compare_samples(contenders, samples, "trial")
    ratios = {own: _of_tunes(samples[own], samples["tune"]) for own in samples if own != "tune"}
    return {
        "what": what,
        **shown,
        "to_best_of_tunes": {own: spread(each) for own, each in ratios.items()},
        "targets": [
            target(f"{own}: seconds to the same best, of Ray Tune's", median(each), at_most=0.5)
            for own, each in ratios.items()
        ],
    }


def _of_tunes(own: Sequence[Sample], tunes: Sequence[Sample]) -> list[float]:
    """Seconds to the same best as parts of Ray Tune's, round by round: each has curves of its own."""
    return [a.extra["to_best_s"] / b.extra["to_best_s"] for a, b in zip(own, tunes, strict=True)]


def run_asha_long(rounds: int, *, trials: int = 40, step_s: float = 1.0) -> Json:
    """The same with steps that take a second: what a scheduler costs is little beside them."""
    return run_asha(rounds, trials=trials, step_s=step_s)


def run_asha_81(rounds: int, *, trials: int = 60, step_s: float = 0.1) -> Json:
    """The same with three times as many steps, so that there is a rung more."""
    return run_asha(rounds, trials=trials, step_s=step_s, steps=3 * STEPS)


def _halving(steps: int = STEPS) -> Json:
    return {"max_t": steps, "grace_period": 1, "reduction_factor": 3}


def _tunes_asha(steps: int = STEPS) -> Any:
    from ray.tune.schedulers import ASHAScheduler

    return ASHAScheduler(time_attr="training_iteration", **_halving(steps))


def learn_in_raysweep(config: dict[str, Any]) -> None:
    """The trainable of raysweep."""
    import raysweep as rs

    _learn(config, rs.get_context().trial_id, _stored() or 0, _report_and_store)


def learn_in_tune(config: dict[str, Any]) -> None:
    """The trainable of Ray Tune, whose ASHA pauses nothing."""
    from ray import tune

    _learn(config, tune.get_context().get_trial_id(), 0, lambda loss, _: tune.report({"loss": loss}))


def _learn(config: dict[str, Any], trial: str, done: int, report: Callable[[float, int], None]) -> None:
    """Curves that cross: who begins well need not end well."""
    chance = random.Random(f"{config['instance']}:{config['index']}")
    floor, rate = chance.random(), 10 ** chance.uniform(-1.5, 0.0)
    for step in range(done + 1, config["steps"] + 1):
        time.sleep(config["step_s"])
        loss = floor + (1.0 - floor) * math.exp(-rate * step)
        write_note(config, trial=trial, step=step, loss=loss)
        report(loss, step)


def _stored() -> Any:
    """What the trial's checkpoint has; None: it begins."""
    import raysweep as rs

    with rs.get_checkpoint() or _nothing() as folder:
        return None if folder is None else pickle.loads(Path(folder, "state").read_bytes())  # noqa: S301


def _report_and_store(loss: float, state: Any) -> None:
    import raysweep as rs

    with rs.new_checkpoint() as folder:
        (folder / "state").write_bytes(pickle.dumps(state))
        rs.report({"loss": loss}, checkpoint=folder)


def fit_in_raysweep(config: dict[str, Any]) -> None:
    """The trainable of raysweep."""
    import raysweep as rs

    _fit(config, rs.get_context().trial_id, _stored(), _report_and_store)


def fit_in_tune(config: dict[str, Any]) -> None:
    """The trainable of Ray Tune, whose ASHA pauses nothing."""
    from ray import tune

    _fit(config, tune.get_context().get_trial_id(), None, lambda loss, _: tune.report({"loss": loss}))


def _fit(
    config: dict[str, Any], trial: str, state: tuple[int, Any] | None, report: Callable[[float, Any], None]
) -> None:
    """A perceptron on scikit-learn's digits, which stays as it is where its rate is too high for numbers."""
    import numpy as np
    from sklearn.datasets import load_digits
    from sklearn.metrics import log_loss
    from sklearn.neural_network import MLPClassifier

    rows, digits = load_digits(return_X_y=True)
    rows = rows / 16.0
    done, model = state or (
        0,
        MLPClassifier(
            (config["width"],) * config["depth"],
            learning_rate_init=config["lr"],
            alpha=config["alpha"],
            batch_size=config["batch"],
            random_state=0,
        ),
    )
    for step in range(done + 1, STEPS + 1):
        with np.errstate(all="ignore"):
            try:
                model.partial_fit(rows[::2], digits[::2], classes=list(range(10)))
                chances = np.nan_to_num(model.predict_proba(rows[1::2]), nan=0.1)
                loss = float(log_loss(digits[1::2], chances, labels=list(range(10))))
            except ValueError:  # weights beyond what a float holds
                loss = WORST
        time.sleep(config["pause_s"])
        write_note(config, trial=trial, step=step, loss=min(loss, WORST))
        report(min(loss, WORST), (step, model))


# -- pbt ----------------------------------------------------------------------------------------------


def run_pbt(rounds: int, *, population: int = 4, intervals: int = 10, epochs: int = 5) -> Json:
    """Populations larger than the cluster, in step: wall time, and how good the best of them ends."""
    space = {"epochs": epochs, "intervals": intervals, "ballast_mb": 0}
    contenders = _populations(population, space, quantile=0.25)
    samples = alternate(contenders, rounds)
    walls = {name: median(one.wall_s for one in each) for name, each in samples.items()}
    scores = {name: [one.extra["best"] for one in each] for name, each in samples.items()}
    between = median(scores["raysweep"]) - median(scores["tune"])
    spread = max(max(each) - min(each) for each in scores.values())
    return {
        "what": f"PBT of {population} linear models on digits, {intervals} x {epochs} epochs, 2 slots",
        **compare_samples(contenders, samples, "trial"),
        "validation_loss": {
            "raysweep_minus_tune": significant(between),
            "spread_of_rounds": significant(spread),
        },
        "targets": [
            target("wall time, of Ray Tune's", walls["raysweep"] / walls["tune"], at_most=0.5),
            target("validation loss of the best, raysweep's minus Ray Tune's", between, at_most=spread),
        ],
    }


def run_exploit(rounds: int, *, intervals: int = 6, ballast_mb: int = 100) -> Json:
    """From the report that decides to the clone's first step, with a checkpoint of 100 MB.

    Ray Tune's clone takes its place in a process that is there, or has to wait for a new one, as it happens:
    so the mean counts, of all exploits of all rounds.
    """
    space = {"epochs": 1, "intervals": intervals, "ballast_mb": ballast_mb}
    contenders = _populations(2, space, quantile=0.5)
    samples = alternate(contenders, rounds)
    took = {name: [s for one in each for s in _cloned_after(one.notes)] for name, each in samples.items()}
    if not all(took.values()):
        raise RuntimeError("no trial took another's place")
    return {
        "what": f"PBT of 2 in 2 slots, a checkpoint of {ballast_mb} MB at each of {intervals} intervals",
        **compare_samples(contenders, samples, "trial"),
        "exploits_s": {
            name: {"mean": significant(fmean(each)), "all": sorted(map(significant, each))}
            for name, each in took.items()
        },
        "targets": [
            target(
                "report to the clone's first step, of Ray Tune's, means",
                fmean(took["raysweep"]) / fmean(took["tune"]),
                at_most=0.25,
            )
        ],
    }


def _populations(population: int, space: Json, *, quantile: float) -> list[Contender]:
    options: Json = {"perturbation_interval": 1, "quantile_fraction": quantile, "synch": True}
    pbt = {"pbt": {**options, "hyperparam_mutations": ["lr", "alpha"], "max_t": space["intervals"]}}

    def tunes_pbt() -> Any:
        from ray import tune
        from ray.tune.schedulers import PopulationBasedTraining

        mutations = {"lr": tune.loguniform(1e-5, 1e-1), "alpha": tune.loguniform(1e-6, 1e-1)}
        return PopulationBasedTraining(
            time_attr="training_iteration", hyperparam_mutations=mutations, **options
        )

    domains = {"lr": {"loguniform": [1e-5, 1e-1]}, "alpha": {"loguniform": [1e-6, 1e-1]}}
    return [
        _own("raysweep", "train_in_raysweep", pbt, population, **space, **domains),
        _tune("tune", train_in_tune, tunes_pbt, population, domains, **space),
    ]


def train_in_raysweep(config: dict[str, Any]) -> None:
    """The trainable of raysweep."""
    import raysweep as rs

    def report(loss: float, write: Callable[[Path], None]) -> None:
        with rs.new_checkpoint() as folder:
            write(folder)
            # Where every report decides, one that waits runs no step that is thrown away.
            rs.report({"loss": loss}, checkpoint=folder, wait=True)

    found = rs.get_checkpoint()
    with found or _nothing() as folder:
        state = _read(folder)
    _train(config, rs.get_context().trial_id, state, report)


def train_in_tune(config: dict[str, Any]) -> None:
    """The trainable of Ray Tune."""
    from ray import tune

    def report(loss: float, write: Callable[[Path], None]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder))
            tune.report({"loss": loss}, checkpoint=tune.Checkpoint.from_directory(folder))

    found = tune.get_checkpoint()
    with found.as_directory() if found else _nothing() as folder:
        state = _read(folder)
    _train(config, tune.get_context().get_trial_id(), state, report)


@contextmanager
def _nothing() -> Iterator[None]:
    yield None


def _read(folder: str | os.PathLike[str] | None) -> Any:
    """The state and its ballast, as a trial that continues has to read both."""
    if folder is None:
        return None
    (Path(folder) / "ballast").read_bytes()
    return pickle.loads((Path(folder) / "state").read_bytes())  # noqa: S301  our own


def _train(
    config: dict[str, Any], trial: str, state: Any, report: Callable[[float, Callable[[Path], None]], None]
) -> None:
    """A linear model on scikit-learn's digits; one interval is one report, with a checkpoint."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import SGDClassifier
    from sklearn.metrics import log_loss

    rows, digits = load_digits(return_X_y=True)
    rows, classes = rows / 16.0, list(range(10))
    done, model, source = state or (0, None, None)
    model = model or SGDClassifier(
        loss="log_loss", learning_rate="constant", eta0=config["lr"], random_state=0
    )
    model.set_params(eta0=config["lr"], alpha=config["alpha"])
    write_note(config, trial=trial, begins=done, source=source)
    for interval in range(done + 1, config["intervals"] + 1):
        for _ in range(config["epochs"]):
            model.partial_fit(rows[::2], digits[::2], classes=classes)
        loss = float(log_loss(digits[1::2], model.predict_proba(rows[1::2]), labels=classes))
        write_note(config, trial=trial, step=interval, loss=loss)

        def write(folder: Path, interval: int = interval) -> None:
            (folder / "state").write_bytes(pickle.dumps((interval, model, trial)))
            (folder / "ballast").write_bytes(os.urandom(config["ballast_mb"] * MB))
            write_note(config, trial=trial, reports=interval)

        report(loss, write)


def _cloned_after(notes: Sequence[Note]) -> Iterator[float]:
    """For each trial that took another's place: seconds from the report that decided to its first step."""
    for at, note in enumerate(notes):
        if note.get("source") in (None, note["trial"]):
            continue
        first = next(
            (later for later in notes[at:] if later["trial"] == note["trial"] and "step" in later), None
        )
        decided = [
            before["at"]
            for before in notes[:at]
            if before.get("reports") == note["begins"] and before["trial"] in (note["trial"], note["source"])
        ]
        if first is not None and decided:
            yield first["at"] - max(decided)


# -- contenders ---------------------------------------------------------------------------------------


def _own(
    name: str,
    trainable: str,
    scheduler: Mapping[str, Any],
    trials: int,
    *,
    search: str | Mapping[str, Any] = "random",
    **space: Any,
) -> Contender:
    numbers = itertools.count()

    def run() -> Sample:
        import raysweep as rs

        with scratch() as folder:
            number = next(numbers)
            spec = rs.SweepSpec(
                name=f"{name}-{number}",
                trainable=f"benchmarks.schedulers:{trainable}",
                param_space={
                    **_indexed(trials, space),
                    "instance": number,
                    "notes": str(folder / "notes"),
                },
                num_samples=1 if "step_s" in space else trials,
                metric="loss",
                mode="min",
                search=search,
                scheduler=dict(scheduler),
                storage_path=str(folder / "stored"),
            )
            return _timed(folder, trials, lambda: _expect(rs.run_sweep(spec).status == "completed"))

    return Contender(name=name, settings=f"run_sweep, scheduler={json.dumps(scheduler)}", run=run)


def _tune(
    name: str,
    trainable: Callable[[dict[str, Any]], None],
    make_scheduler: Callable[[], Any],
    trials: int,
    domains: Mapping[str, Mapping[str, Sequence[float]]] | None = None,
    **space: Any,
) -> Contender:
    numbers = itertools.count()

    def run() -> Sample:
        from ray import tune

        drawn = {
            key: getattr(tune, kind)(*bounds)
            for key, domain in (domains or {}).items()
            for kind, bounds in domain.items()
        }
        indexed: dict[str, Any] = {"index": tune.grid_search(range(trials))} if "step_s" in space else {}
        with scratch() as folder:
            given = {
                **space,
                **indexed,
                **drawn,
                "instance": next(numbers),
                "notes": str(folder / "notes"),
            }
            tuner = tune.Tuner(
                trainable,
                param_space=given,
                tune_config=tune.TuneConfig(
                    metric="loss",
                    mode="min",
                    num_samples=1 if indexed else trials,
                    scheduler=make_scheduler(),
                    reuse_actors=True,
                ),
                run_config=tune.RunConfig(storage_path=str(folder / "stored"), verbose=0),
            )
            return _timed(folder, trials, lambda: _expect(not tuner.fit().num_errors))

    return Contender(
        name=name, settings="Tuner.fit, reuse_actors=True (the default), the same scheduler's twin", run=run
    )


def _indexed(trials: int, space: Mapping[str, Any]) -> Json:
    return {**space, "index": {"grid_search": list(range(trials))}} if "step_s" in space else dict(space)


def _timed(folder: Path, trials: int, call: Callable[[], None]) -> Sample:
    use_up_idle_workers()
    began = time.time()
    call()
    wall_s = time.time() - began
    notes = read_notes(folder / "notes", began)
    steps = [note for note in notes if "step" in note]
    extra = {"best": min(note["loss"] for note in steps), "steps": float(len(steps))}
    return Sample(units=trials, wall_s=wall_s, extra=extra, notes=notes)


def _expect(is_well: bool) -> None:
    if not is_well:
        raise RuntimeError("it did not end well")
