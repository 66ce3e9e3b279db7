"""The figures: what is used every day, by what its cost grows with.

A figure is prepared for a size; what it returns then is called and timed. The call may return a `Done`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal

import raysweep as rs
from benchmarks.everyday.lookup import AbsentError, find
from benchmarks.everyday.sweeps import SPACE, events, open_store, spec, store_run, writer_of

Call = Callable[[], object]
Prepare = Callable[[int, Path], Call]
Clock = Literal["cpu", "wall"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """One call. `seconds`: what counts, where that is not the whole call. `units`: of how much work."""

    units: int = 1
    seconds: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """`sizes`: the two that are compared. `clock`: processor time of the process, or wall time."""

    name: str
    grows: str
    sizes: tuple[int, int]
    prepare: Prepare
    clock: Clock = "cpu"
    group: str = ""
    tiny: tuple[int, int] = (0, 0)
    """The sizes at which the tests count its calls; (0, 0): they do not."""

    @property
    def needs_ray(self) -> bool:
        """Whether it starts an embedded Ray."""
        return self.group == "ray"


def _values(make: Callable[[int], Any], word: str = "choice") -> Prepare:
    return lambda n, place: lambda: spec(param_space={"x": {word: [make(number) for number in range(n)]}})


def _parameters(n: int, place: Path) -> Call:
    return lambda: spec(param_space={f"p{number}": {"uniform": [0, 1]} for number in range(n)})


def _branches(n: int, place: Path) -> Call:
    branches = {f"b{number}": {"c": {"choice": [1, 2]}} for number in range(n)}
    return lambda: spec(param_space={"x": {"choice": branches}})


def _points(n: int, place: Path) -> Call:
    points = [{"x": (number + 1) / (n + 2), "y": 0.1, "z": 1} for number in range(n)]
    return lambda: spec(points=points, num_samples=n)


def _where(n: int, place: Path) -> Call:
    return lambda: spec(where=[f"x < {number + 2}" for number in range(n)])


def _json(n: int, place: Path) -> Call:
    made = spec(param_space={"x": {"choice": list(range(n))}})
    return lambda: rs.SweepSpec.from_json(made.to_json()).digest()


def _search(kind: str) -> Prepare:
    """Ten asks after n results."""

    def prepare(n: int, place: Path) -> Call:
        make = find("raysweep.search.making:make_searcher", "raysweep.search:make_searcher")
        asked, random = make(spec(search=kind, num_samples=n + 10), 1), Random(1)
        for number in range(n):
            config = {"x": random.random(), "y": 10 ** random.uniform(-5, 0), "z": random.choice([1, 2, 3])}
            asked.restore(number, config)
            asked.tell(number, config["x"], "completed")

        def ask() -> None:
            for number in range(n, n + 10):
                asked.ask(number)
                asked.tell(number, 0.5, "completed")

        return ask

    return prepare


def _grid_asks(n: int, place: Path) -> Call:
    make = find("raysweep.search.making:make_searcher", "raysweep.search:make_searcher")
    made = spec(param_space={"x": {"grid_search": list(range(n))}})

    def ask() -> None:
        asked = make(made, 1)
        for number in range(n):
            asked.ask(number)

    return ask


def _curve(config: dict[str, Any], iteration: int) -> dict[str, float] | None:
    return {"loss": config["x"] / iteration} if iteration <= config.get("reports", 4) else None


def _simulated(scheduler: Any, **fields: Any) -> Prepare:
    def prepare(n: int, place: Path) -> Call:
        simulate = find("raysweep.simulate:simulate")
        made = spec(num_samples=n, scheduler=scheduler, **fields)
        return lambda: _played(simulate(made, _curve, slots=4))

    return prepare


def _simulated_reports(n: int, place: Path) -> Call:
    simulate = find("raysweep.simulate:simulate")
    made = spec(num_samples=4, param_space=SPACE | {"reports": n})
    return lambda: _played(simulate(made, _curve, slots=4))


def _simulated_slots(n: int, place: Path) -> Call:
    simulate = find("raysweep.simulate:simulate")
    made = spec(num_samples=4 * n)
    return lambda: _played(simulate(made, _curve, slots=n))


def _played(simulated: Any) -> Done:
    """Two trees may play the same sweep with more waiting or less: a ratio is that of an act, or a write."""
    return Done(units=len(simulated.timeline) + len(simulated.writes))


def _codec(n: int, place: Path) -> Call:
    encode, decode, found = find("raysweep.core:encode"), find("raysweep.core:decode"), events(n)
    return lambda: [decode(encode(event)) for event in found]


def _steps(n: int, place: Path) -> Call:
    step, create, found = find("raysweep.core:step"), find("raysweep.core:SweepState").create, events(n)

    def run() -> None:
        state = create(spec(num_samples=n), 1)
        for event in found:
            step(state, event)

    return run


def _append(n: int, place: Path) -> Call:
    lines = [b'{"type":"Nothing","at":1.0,"text":"' + b"x" * 100 + b'"}'] * n
    folder = find("raysweep.runs.folder:SweepFolder")(open_store(place), "append-1")
    first = find("raysweep.core:encode")(events(1)[0])

    def append() -> None:
        with writer_of(folder.journal(), first) as writer:
            for line in lines:
                writer.write(line)

    return append


def _replay(n: int, place: Path) -> Call:
    folder = store_run(place, n)
    read = find("raysweep.runs.ownership.replay:read_state", "raysweep.runs.replay:read_state")
    return lambda: read(folder, folder.read_spec())


def _of_run(work: Callable[[Any, Path], object], reports: int = 1) -> Prepare:
    """Work on a run of n trials."""

    def prepare(n: int, place: Path) -> Call:
        folder = store_run(place, n, reports)
        work(folder, place)  # once: what is imported, and looked for
        return lambda: work(folder, place)

    return prepare


def _status(folder: Any, place: Path) -> object:
    reader = find("raysweep.runs.reading.reader:SweepReader", "raysweep.runs.reader:SweepReader")
    return reader(str(place), folder.sweep_id).read()


def _trials(folder: Any, place: Path) -> object:
    return [(trial.score, trial.config) for trial in _load(folder).trials]


def _load(folder: Any) -> Any:
    return find("raysweep:load")(folder.uri)


def _outcome_json(folder: Any, place: Path) -> object:
    outcome = _load(folder)
    return type(outcome).from_json(outcome.to_json())


def _verify(folder: Any, place: Path) -> object:
    return find("raysweep.verify.sweep:verify_sweep")(folder)


def _page(folder: Any, place: Path) -> object:
    return find("raysweep.pages.write:write_report")(folder.uri, place / "report.html")


def _runs(work: Callable[[Path], object]) -> Prepare:
    def prepare(n: int, place: Path) -> Call:
        for number in range(n):
            store_run(place, 2, number=number)
        work(place)
        return lambda: work(place)

    return prepare


def _nights(place: Path) -> object:
    return find("raysweep.runs.reading.nights:nights_at")(open_store(place))


def _listed(place: Path) -> object:
    return find("raysweep:sweeps")(str(place))


def _of_files(*, is_next: bool = False, is_restored: bool = False) -> Prepare:
    """A page that the machine has not handed out lately costs the kernel five times what others cost."""

    def prepare(n: int, place: Path) -> Call:
        call = _save(n, place, is_next=is_next, is_restored=is_restored)
        pages = bytearray(4_000_000 * n)
        pages[::4096] = b"x" * len(pages[::4096])
        return call

    return prepare


def _save(n: int, place: Path, *, is_next: bool, is_restored: bool) -> Call:
    source, target = place / "source", place / "target"
    source.mkdir()
    (source / "body").write_bytes(os.urandom(n * 900_000))
    (source / "head").write_bytes(os.urandom(n * 100_000))
    make = find(
        "raysweep.storage.checkpoints.store:CheckpointStore", "raysweep.storage.checkpoints:CheckpointStore"
    )
    store = make(open_store(place / "store"), "everyday-1")
    if not is_next and not is_restored:
        return lambda: store.save("00000", 1, source)
    first = store.save("00000", 1, source)
    if is_restored:
        return lambda: store.restore(first, target)
    (source / "head").write_bytes(os.urandom(n * 100_000))
    parent = store.read_manifest(first)
    return lambda: store.save("00000", 2, source, parent=parent)


def _reports(n: int, place: Path) -> Call:
    run_trial = find("raysweep.testing:run_trial")

    def train(config: dict[str, Any]) -> None:
        for number in range(n):
            rs.report({"loss": 1.0, "number": number})

    return lambda: run_trial(train, {"x": 1})


def _stall(n: int, place: Path) -> Call:
    """Seconds inside of `report`, with work inside of `new_checkpoint`: n checkpoints of 8 MB."""
    run_trial, body = find("raysweep.testing:run_trial"), os.urandom(8_000_000)

    def train(config: dict[str, Any]) -> None:
        for _ in range(n):
            with rs.new_checkpoint() as folder:
                (folder / "body").write_bytes(body)
                (folder / "head").write_bytes(os.urandom(100_000))
                time.sleep(0.1)
                began = time.perf_counter()
                rs.report({"loss": 1.0}, checkpoint=folder)
                blocked[0] += time.perf_counter() - began

    blocked = [0.0]

    def run() -> Done:
        blocked[0] = 0.0
        run_trial(train, {"x": 1})
        return Done(seconds=blocked[0])

    return run


def _stdout(is_one_line: bool) -> Prepare:
    def prepare(n: int, place: Path) -> Call:
        reader = find("raysweep.programs.readers.stdout:StdoutReader")(r"loss=(?P<loss>\S+)")
        pieces = [b"x" * 65536] * n if is_one_line else [b"loss=0.5 and more\n" * 100] * n

        def read() -> None:
            for piece in pieces:
                reader.feed(piece)
            reader.read(is_end=True)

        return read

    return prepare


def _jsonl(n: int, place: Path) -> Call:
    reader = find("raysweep.programs.readers.jsonl:JsonlReader")(place / "metrics.jsonl")
    (place / "metrics.jsonl").write_text('{"loss": 0.5, "step": 1}\n' * n)
    return lambda: reader.read(is_end=True)


def _log(n: int, place: Path) -> Call:
    (place / "log").write_bytes(b"a line of a log\n" * n)
    read, decode = find("raysweep.storage.logs:read_bounded"), find("raysweep.storage.logs:decode_log")

    def look() -> None:
        descriptor = os.open(place / "log", os.O_RDONLY)
        for _ in range(20):
            decode(read(descriptor, 1 << 30).encode())
        os.close(descriptor)

    return look


def _sweep(**fields: Any) -> Prepare:
    """The whole call on an embedded Ray that is up."""

    def prepare(n: int, place: Path) -> Call:
        def run() -> None:
            given = {"num_samples": n} | {name: make(n) for name, make in fields.items()}
            outcome = rs.run_sweep(spec(name=f"s{time.time_ns()}", storage_path=str(place), **given))
            if outcome.status != "completed":
                raise RuntimeError(f"the sweep ended as {outcome.status}: {outcome.why}")

        return run

    return prepare


def report_many(config: dict[str, Any]) -> None:
    """A trainable that reports `config["reports"]` times."""
    for number in range(config["reports"]):
        rs.report({"loss": 1.0 / (number + 1)})


def print_many(config: dict[str, Any]) -> dict[str, float]:
    """A trainable that prints `config["lines"]` lines."""
    for number in range(config["lines"]):
        print("a line of a log", number)
    return {"loss": 1.0}


def _figures() -> list[Figure]:
    found: list[Figure] = []

    def add(group: str, name: str, grows: str, sizes: tuple[int, int], prepare: Prepare, **more: Any) -> None:
        found.append(Figure(group=group, name=name, grows=grows, sizes=sizes, prepare=prepare, **more))

    values = {"tiny": (50, 200)}
    add("spec", "choice of numbers", "values", (4_000, 16_000), _values(int), **values)
    add("spec", "choice of mappings", "values", (1_000, 4_000), _values(lambda n: {"a": n}), **values)
    add("spec", "choice of tuples", "values", (1_000, 4_000), _values(lambda n: (n, n)), **values)
    add("spec", "grid", "values", (4_000, 16_000), _values(float, "grid_search"), **values)
    add("spec", "parameters", "parameters", (500, 2_000), _parameters, **values)
    add("spec", "branches", "branches", (250, 1_000), _branches, **values)
    add("spec", "points", "points", (2_000, 8_000), _points, **values)
    add("spec", "where", "relations", (250, 1_000), _where, **values)
    add("spec", "JSON and digest", "values", (2_000, 8_000), _json, **values)
    for kind in ("random", "tpe"):
        add("search", f"10 asks of {kind}", "results", (200, 800), _search(kind))
    # Below 250 results `auto` is the Gaussian process.
    add("search", "10 asks of gp", "results", (50, 200), _search("gp"))
    add("search", "10 asks of auto", "results", (400, 1_600), _search("auto"))
    add("search", "grid, asked", "values", (1_000, 4_000), _grid_asks, tiny=(50, 200))
    schedulers: dict[str, Any] = {
        "fifo": "fifo",
        "asha": {"asha": {"max_t": 4}},
        "median": "median_stopping",
        "hyperband": {"hyperband": {"max_t": 4}},
    }
    for name, scheduler in schedulers.items():
        add("simulator", name, "trials", (100, 400), _simulated(scheduler), tiny=(20, 80))
    pbt = {"pbt": {"perturbation_interval": 2, "hyperparam_mutations": ["x"]}}
    add("simulator", "pbt", "trials", (25, 100), _simulated(pbt), tiny=(8, 32))
    add("simulator", "reports", "reports", (500, 2_000), _simulated_reports, tiny=(50, 200))
    add("simulator", "slots", "slots", (50, 200), _simulated_slots, tiny=(10, 40))
    add("journal", "events, encoded and decoded", "trials", (1_000, 4_000), _codec, tiny=(50, 200))
    add("journal", "steps of the core", "trials", (1_000, 4_000), _steps, tiny=(50, 200))
    add("journal", "append", "records", (10_000, 40_000), _append)
    add("journal", "replay", "trials", (1_000, 4_000), _replay, tiny=(50, 200))
    add("reading", "status", "trials", (1_000, 4_000), _of_run(_status), tiny=(50, 200))
    add("reading", "load, every trial", "trials", (1_000, 4_000), _of_run(_trials), tiny=(50, 200))
    add("reading", "outcome as JSON", "trials", (1_000, 4_000), _of_run(_outcome_json), tiny=(50, 200))
    add("reading", "verify", "trials", (1_000, 4_000), _of_run(_verify), tiny=(50, 200))
    add("reading", "report page", "trials", (250, 1_000), _of_run(_page, 8), tiny=(20, 80))
    add("runs", "nights", "runs", (50, 200), _runs(_nights), tiny=(5, 20))
    add("runs", "sweeps", "runs", (50, 200), _runs(_listed), tiny=(5, 20))
    add("checkpoints", "store", "MB", (8, 32), _of_files())
    add("checkpoints", "store, 90 % unchanged", "MB", (8, 32), _of_files(is_next=True))
    add("checkpoints", "restore", "MB", (8, 32), _of_files(is_restored=True))
    add("checkpoints", "reports of a trial", "reports", (5_000, 20_000), _reports, tiny=(50, 200))
    add("checkpoints", "blocked by new_checkpoint", "checkpoints", (4, 16), _stall)
    add("text", "lines of stdout", "kB", (250, 1_000), _stdout(False), tiny=(10, 40))
    add("text", "one line of stdout", "64 KiB", (100, 400), _stdout(True), tiny=(10, 40))
    add("text", "lines of JSON", "lines", (10_000, 40_000), _jsonl, tiny=(100, 400))
    add("text", "a log", "lines", (50_000, 200_000), _log)
    inline: dict[str, Any] = {"isolation": lambda n: "inline", "max_concurrent_trials": lambda n: 1}
    grid = {"num_samples": lambda n: 1, "param_space": lambda n: {"x": {"grid_search": list(range(n))}}}
    for name, grows, sizes, prepare in (
        ("sweep, inline", "trials", (1_000, 4_000), _sweep(**inline)),
        ("sweep", "trials", (1_000, 4_000), _sweep()),
        ("sweep of a grid", "values", (1_000, 4_000), _sweep(**grid)),
        ("reports of a sweep", "reports", (50_000, 200_000), _talking("report_many", "reports")),
        ("lines that trials print", "lines", (20_000, 80_000), _talking("print_many", "lines")),
    ):
        add("ray", name, grows, sizes, prepare, clock="wall")
    return found


def _talking(name: str, parameter: str) -> Prepare:
    return _sweep(
        num_samples=lambda n: 2,
        trainable=lambda n: f"benchmarks.everyday.figures:{name}",
        param_space=lambda n: {parameter: n},
    )


FIGURES = _figures()
__all__ = ["FIGURES", "AbsentError", "Figure"]
