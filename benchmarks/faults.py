"""What faults do to a sweep, of raysweep and of Ray Tune: `python -m benchmarks.faults [CASE …]` prints JSON.

Each case runs both in processes of their own: a cluster, a controller on it, the fault, the run after it
where there is one. What happened is read from the log that the trials write, so both are measured alike. Tune
gets `max_failures=3` (by default any fault ends the trial) and one checkpoint a step, as raysweep does.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.measure import Json
from raysweep.raycompat.patience import patient_start

STEPS: Final = 8
STEP_S: Final = 0.25
PATIENCE_S: Final = 240.0
NAMES: Final = ("raysweep", "tune")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of the trials' log: a trial `start`s at a step, makes a `step`, or `end`s."""

    event: str
    trial: int
    step: int
    pid: int
    node: str
    at: float


class Log:
    """The log of one case."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log"
        self.path.touch()

    def read(self) -> list[Line]:
        """All lines so far."""
        words = (line.split() for line in self.path.read_text().splitlines())
        return [
            Line(event=e, trial=int(t), step=int(s), pid=int(p), node=n, at=float(a))
            for e, t, s, p, n, a in words
        ]

    def wait(self, is_it: Callable[[Line], bool], controller: subprocess.Popen[Any]) -> Line:
        """The first line that fits."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            found = next((line for line in self.read() if is_it(line)), None)
            if found is not None:
                return found
            if controller.poll() is not None:
                raise RuntimeError(f"the controller ended with {controller.returncode} before the fault")
            time.sleep(0.02)
        raise RuntimeError("the trials did not get so far")

    def summary(self, fault_at: float) -> Json:
        """Counted alike for both: what was done twice, what is missing, how soon it continued."""
        lines = self.read()
        steps: dict[tuple[int, int], int] = {}
        for line in lines:
            if line.event == "step":
                steps[line.trial, line.step] = steps.get((line.trial, line.step), 0) + 1
        ended_before = {line.trial for line in lines if line.event == "end" and line.at < fault_at}
        after = [line for line in lines if line.event == "start" and line.at >= fault_at]
        interrupted = {line.trial for line in lines if line.event == "start" and line.at < fault_at}
        again = [line for line in after if line.trial in interrupted - ended_before]
        return {
            "trials_ended": len({line.trial for line in lines if line.event == "end"}),
            "finished_trials_run_again": len({line.trial for line in after} & ended_before),
            "steps_done_twice": sum(count - 1 for count in steps.values()),
            "seconds_to_recover": round(min(line.at for line in again) - fault_at, 2) if again else None,
        }


# -- the controllers ----------------------------------------------------------------------------------


def stepped(config: dict[str, Any]) -> None:
    """The trial of both: `STEPS` steps with a checkpoint each, on whichever library runs it."""
    import ray

    library = _Raysweep() if config["library"] == "raysweep" else _Tune()
    node = str(ray.get_runtime_context().get_node_id()) if ray.is_initialized() else "?"
    begin = library.restore()

    def note(event: str, step: int) -> None:
        text = f"{event} {config['number']} {step} {os.getpid()} {node} {time.time()}\n"
        with open(config["log"], "ab", buffering=0) as file:
            file.write(text.encode())

    note("start", begin)
    # Only the first time: the second attempt needs no more than there is.
    if config["gib"] and not begin and not Path(config["log"] + ".grown").exists():
        Path(config["log"] + ".grown").touch()
        held = bytearray(int(config["gib"] * 2**30))
        for place in range(0, len(held), 4096):
            held[place] = 1
        time.sleep(10)
    for step in range(begin + 1, STEPS + 1):
        time.sleep(STEP_S)
        note("step", step)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "step").write_text(str(step))
            library.report({"loss": config["number"] + 1.0 / step, "training_iteration": step}, folder)
    note("end", STEPS)


class _Raysweep:
    def restore(self) -> int:
        import raysweep as rs

        checkpoint = rs.get_checkpoint()
        if checkpoint is None:
            return 0
        with checkpoint as folder:
            return int((folder / "step").read_text())

    def report(self, metrics: dict[str, Any], folder: str) -> None:
        import raysweep as rs

        rs.report(metrics, checkpoint=folder)


class _Tune:
    def restore(self) -> int:
        from ray import tune

        checkpoint = tune.get_checkpoint()
        if checkpoint is None:
            return 0
        with checkpoint.as_directory() as folder:
            return int(Path(folder, "step").read_text())

    def report(self, metrics: dict[str, Any], folder: str) -> None:
        from ray import tune

        tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(folder))


def run_raysweep(options: Json) -> Json:
    """One controller of raysweep."""
    import raysweep as rs

    spec = rs.SweepSpec(
        name="faults",
        trainable="benchmarks.faults:stepped",
        param_space={"number": {"grid_search": list(range(options["trials"]))}, **_config(options)},
        metric="loss",
        mode="min",
        scheduler=_asha() if options["asha"] else "fifo",
        failure={"max_failures": 3, "backoff_initial_s": 0.0, "backoff_max_s": 0.0},
        storage_path=options["folder"] + "/sweeps",
    )
    outcome = rs.run_sweep(spec, key="faults", address=options["address"])
    attempts = [attempt for trial in outcome.trials for attempt in trial.attempts]
    kinds = [attempt.error.kind for attempt in attempts if attempt.error is not None]
    failed = next((trial.error.message for trial in outcome.trials if trial.error is not None), None)
    return {"ended": outcome.status, "counts": outcome.counts, "attempts_lost_to": kinds, "error": failed}


def run_tune(options: Json) -> Json:
    """One controller of Ray Tune; `restore`: after its first one was killed."""
    import ray
    from ray import tune

    ray.init(address=options["address"], log_to_driver=False)
    path = options["folder"] + "/tune"
    if options["restore"]:
        tuner = tune.Tuner.restore(f"{path}/faults", trainable=stepped, resume_errored=True)
    else:
        tuner = tune.Tuner(
            stepped,
            param_space={"number": tune.grid_search(list(range(options["trials"]))), **_config(options)},
            tune_config=tune.TuneConfig(
                metric="loss", mode="min", scheduler=_tune_asha() if options["asha"] else None
            ),
            run_config=tune.RunConfig(
                name="faults",
                storage_path=path,
                verbose=0,
                failure_config=tune.FailureConfig(max_failures=3),
            ),
        )
    results = tuner.fit()
    return {"ended": "fit() returned", "trials": len(results), "errors": len(results.errors)}


def _asha() -> Json:
    return {"asha": {"max_t": STEPS, "grace_period": 2, "reduction_factor": 2}}


def _tune_asha() -> Any:
    from ray.tune.schedulers import AsyncHyperBandScheduler

    return AsyncHyperBandScheduler(max_t=STEPS, grace_period=2, reduction_factor=2)


def _config(options: Json) -> Json:
    return {"library": options["library"], "log": options["folder"] + "/log", "gib": options["gib"]}


# -- the cases ----------------------------------------------------------------------------------------


@contextmanager
def cluster(workers: int = 0, **system_config: Any) -> Iterator[Any]:
    """A head with two CPUs; or one with none, and `workers` nodes of one CPU. Else Ray's own settings."""
    from ray.cluster_utils import Cluster

    head: Json = {"num_cpus": 0 if workers else 2, "include_dashboard": False}
    if system_config:
        head["_system_config"] = system_config
    with patient_start():
        made = Cluster(initialize_head=True, head_node_args=head)
        try:
            for _ in range(workers):
                made.add_node(num_cpus=1)
            yield made
        finally:
            made.shutdown()


@contextmanager
def controller(library: str, folder: Path, address: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs one controller; it prints its result as JSON."""
    given: Json = {"library": library, "folder": str(folder), "address": address, "trials": 4, "asha": False}
    given |= {"gib": 0, "restore": False, **options}
    with (folder / f"stderr-{time.monotonic_ns()}").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.faults", "--controller", json.dumps(given)],
            stdout=subprocess.PIPE,
            stderr=errors,
            env=os.environ | {"RAY_AIR_NEW_OUTPUT": "0"},
        )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def finish(process: subprocess.Popen[bytes]) -> Json:
    """What a controller printed last, or how it ended."""
    try:
        out, _ = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        return {"ended": f"still running after {PATIENCE_S:g} s"}
    last = out.decode().strip().splitlines()[-1:] or ["{}"]
    with suppress(json.JSONDecodeError):
        said = json.loads(last[0])
        if isinstance(said, dict):
            return said
    return {"ended": f"exit code {process.returncode}"}


def worker_kill(library: str, folder: Path) -> Json:
    """SIGKILL of the process of a trial in its third step."""
    log = Log(folder)
    with cluster() as ray, controller(library, folder, ray.address) as process:
        line = log.wait(lambda line: line.event == "step" and line.step == 3, process)
        os.kill(line.pid, signal.SIGKILL)
        fault_at = time.time()
        return finish(process) | log.summary(fault_at)


def node_death(library: str, folder: Path) -> Json:
    """One of two nodes dies (raylet and workers) in the third step of its trial."""
    log = Log(folder)
    with cluster(workers=2) as ray, controller(library, folder, ray.address) as process:
        line = log.wait(lambda line: line.event == "step" and line.step == 3, process)
        dying = next(node for node in ray.worker_nodes if node.node_id == line.node)
        ray.remove_node(dying, allow_graceful=False)
        fault_at = time.time()
        return finish(process) | log.summary(fault_at)


def out_of_memory(library: str, folder: Path) -> Json:
    """A trial takes 4 GiB where the memory monitor allows 2 more than are in use."""
    log = Log(folder)
    memory = {
        line.split()[0]: int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines()
    }
    total, available = memory["MemTotal:"], memory["MemAvailable:"]
    threshold = (total - available + 2 * 2**20) / total
    limits = {"memory_usage_threshold": threshold, "memory_monitor_refresh_ms": 100}
    with cluster(**limits) as ray, controller(library, folder, ray.address, gib=4) as process:
        line = log.wait(lambda line: line.event == "start", process)
        return finish(process) | log.summary(line.at + 0.01)


def controller_kill(library: str, folder: Path) -> Json:
    """SIGKILL of the controller of an ASHA sweep after four trials, then the same key, or `Tuner.restore`."""
    log = Log(folder)
    with cluster() as ray:
        with controller(library, folder, ray.address, trials=10, asha=True) as process:
            log.wait(lambda line: line.trial == 4 and line.step == 1, process)
            process.send_signal(signal.SIGKILL)
            process.wait()
            fault_at = time.time()
        time.sleep(2)
        with controller(library, folder, ray.address, trials=10, asha=True, restore=True) as process:
            said = finish(process)
        # Higher numbers are worse: all of these belong stopped at the first rung, if it is remembered.
        late = {
            line.trial for line in log.read() if line.trial > 4 and line.event == "step" and line.step > 2
        }
        return said | log.summary(fault_at) | {"bad_trials_past_the_first_rung": len(late)}


def damaged_state(library: str, folder: Path) -> Json:
    """As before, and the newest file of the sweep's state has lost its second half."""
    log = Log(folder)
    with cluster() as ray:
        with controller(library, folder, ray.address) as process:
            log.wait(lambda line: line.trial == 2 and line.step == 2, process)
            process.send_signal(signal.SIGKILL)
            process.wait()
            fault_at = time.time()
        time.sleep(2)
        pattern = "sweeps/*/journal/*" if library == "raysweep" else "tune/faults/experiment_state*"
        newest = max(folder.glob(pattern), key=lambda path: path.stat().st_mtime_ns)
        newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
        with controller(library, folder, ray.address, restore=True) as process:
            said = finish(process)
        return said | log.summary(fault_at) | {"damaged": newest.name}


def two_controllers(library: str, folder: Path) -> Json:
    """The same sweep is started twice at once."""
    log = Log(folder)
    with (
        cluster() as ray,
        controller(library, folder, ray.address) as first,
        controller(library, folder, ray.address) as second,
    ):
        said = [finish(first), finish(second)]
        starts = [line for line in log.read() if line.event == "start"]
        return {
            "ended": [item.get("ended") for item in said],
            "starts_of_4_trials": len(starts),
        } | log.summary(time.time())


CASES: Final[dict[str, Callable[[str, Path], Json]]] = {
    "worker_kill": worker_kill,
    "node_death": node_death,
    "out_of_memory": out_of_memory,
    "controller_kill": controller_kill,
    "damaged_state": damaged_state,
    "two_controllers": two_controllers,
}


def main() -> None:
    """Run the cases and print what came of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; default: all")
    parser.add_argument("--controller", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.controller:
        options = json.loads(asked.controller)
        _say(_run_controller(options))
        return
    unknown = [name for name in asked.cases if name not in CASES]
    if unknown:
        parser.error(f"no case {unknown[0]!r}; there are {', '.join(CASES)}")
    results: Json = {}
    for name in asked.cases or CASES:
        results[name] = {"what": (CASES[name].__doc__ or "").strip()}
        for library in NAMES:
            results[name][library] = _run_case(name, library)
            sys.stderr.write(f"{name} {library}: {json.dumps(results[name][library])}\n")
    _say(results, indent=2)


def _run_case(name: str, library: str) -> Json:
    """In a process of its own: a cluster leaves settings and connections behind in its process."""
    code = (
        "import json, sys, tempfile; from pathlib import Path; from benchmarks.faults import CASES;"
        "folder = tempfile.mkdtemp(prefix='raysweep-faults-');"
        "print('\\n' + json.dumps(CASES[sys.argv[1]](sys.argv[2], Path(folder))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, name, library], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["?"])[-1]}
    result: Json = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def _run_controller(options: Json) -> Json:
    try:
        return run_raysweep(options) if options["library"] == "raysweep" else run_tune(options)
    except Exception as error:  # noqa: BLE001  how it ends is what is measured
        return {"ended": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}


def _say(result: Json, indent: int | None = None) -> None:
    sys.stdout.write("\n" + json.dumps(result, indent=indent) + "\n")


if __name__ == "__main__":
    main()
