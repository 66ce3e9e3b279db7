"""Command lines with `--json`, by the name of their document, and what each needs to be stored before."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from raysweep.outcome import TrainOutcome
from raysweep.runs.across_runs.champions import read_champion
from raysweep.runs.across_runs.records import release_id
from raysweep.runs.across_runs.registrations import add_model
from raysweep.runs.ownership.holder import current_holder
from raysweep.runs.training import RunFolder
from raysweep.specs import TrainSpec
from raysweep.specs.approval import ApprovalSpec
from raysweep.specs.identity import RunId
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.objects.opening import open_store
from tests.begun_trainings import begin_training
from tests.unit.cli.conftest import Stored
from tests.unit.pages.odd_sweeps import ODD
from tests.unit.pages.sweeps import store
from tests.unit.pipeline.gates import night
from tests.unit.runs.across_runs.nights import LINE
from tests.unit.training.drifting import SWEEP, drifting

COMMANDS: Final[dict[str, str]] = {
    "status": "status --storage {store}",
    "status SWEEP": "status {sweep} --storage {store}",
    "nights": "nights night --storage {store}",
    "best": "best {scored} --storage {store}",
    "sweep": "sweep done.json --key k --storage {store}",
    "compare": "compare {scored} {scored} --storage {store}",
    "attach": "attach {ended} --storage {store}",
    "trials": "trials {sweep} --storage {store}",
    "trials --history": "trials {sweep} --history --storage {store}",
    "report": "report {sweep} --output report.html --storage {store}",
    "top": "top {store} --once",
    "checkpoints": "checkpoints {sweep} --storage {store}",
    "logs": "logs {sweep} --storage {store}",
    "verify": "verify {sweep} --storage {store}",
    "gc": "gc {sweep} --dry-run --storage {store}",
    "export": "export {sweep} --to csv --out out --storage {store}",
    "cancel": "cancel {ended} --storage {store}",
    "rm": "rm {ended} --yes --storage {store}",
    "plan": "plan spec.json --storage {store}",
    "budget": "budget agent --cpu-hours 100 --storage {store}",
    "init": "init project",
    "evidence": "evidence flights --storage {line}",
    "approve": "approve flights@latest --storage {line}",
    "rollback": "rollback flights --to 2026-11-24 --storage {line}",
    "register": "register flights --storage {modelled}",
    "status TRAINING": "status {training} --storage {store}",
    "train": "train train.json --key k --storage {trained}",
    "pull": "pull {checkpoint} pulled",
    "resume": "resume {ran} --here --storage {store}",
    "retry": "retry {broken} --here --storage {store}",
    "extend": "extend {saved} --top 1 --max-t 6 --here --storage {store}",
    "restart": "restart {ran} --here --storage {store}",
    "pipeline": "pipeline pipeline.json --key k --here --storage {store}",
    "transfer": "transfer {drifting} --scale rows=64000",
    "doctor": "doctor --address http://127.0.0.1:9",
    "error: spec": "plan bad.json --storage {store}",
    "error: sweep_not_found": "best nothing --storage {store}",
    "error: usage": "best",
    "error: sweep_held": "rm {held} --yes --storage {store}",
    "error: no_best_trial": "best {begun} --storage {store}",
    "error: spec_changed": "sweep changed.json --key k --storage {store}",
    "error: infeasible": "plan huge.json --cluster 1x2 --storage {store}",
    "error: trainable_import": "plan elsewhere.json --storage {store}",
    "error: plan_changed": "sweep spec.json --plan {token} --set num_samples=3 --storage {store}",
    "error: budget_spent": "sweep keyed.json --here --key b --storage {bounded}",
    "error: champion_kept": "rm {champion} --yes --storage {kept}",
    "error: sweep_damaged": "best {damaged} --storage {store}",
    "error: checkpoint_damaged": "pull {torn} pulled",
    "error: not a pipeline's judge": "judge pipeline.json --key k --storage {store}",
    "error: no manifest": "clusters nothing.yaml",
}
MORE: Final[dict[str, tuple[str, ...]]] = {
    "status": ("status --state failed --storage {store}", "status --since 7d --storage {store}"),
    "status SWEEP": (
        "status {held} --storage {store}",
        "status {begun} --storage {store}",
        "status {ran} --storage {store}",
        "status {broken} --storage {store}",
    ),
    "nights": ("nights night --last 1 --storage {store}",),
    "best": ("best {ran} --storage {store}",),
    "sweep": ("sweep ran.json --key new --here", "sweep broken.json --key new --here"),
    "compare": ("compare {ran} {ran}#1 --by x --storage {store}",),
    "attach": ("attach {ran} --storage {store}", "attach {broken} --storage {store}"),
    "trials": (
        "trials {ran} --attempts --storage {store}",
        "trials {broken} --top 1 --storage {store}",
        "trials {begun} --sort -state --storage {store}",
    ),
    "trials --history": ("trials {ran} --history --storage {store}",),
    "report": ("report {held} --output {held}.html --storage {store}",),
    "checkpoints": ("checkpoints {ran} --storage {store}", "checkpoints {training} --storage {store}"),
    "logs": ("logs {broken} --storage {store}", "logs {held} --storage {store}"),
    "verify": ("verify {ran} --quick --storage {store}", "verify {damaged} --storage {store}"),
    "gc": ("gc {ran} --budget 1KiB --storage {store}", "gc night --dry-run --storage {store}"),
    "export": ("export {ran} --to optuna --out study.db --storage {store}",),
    "cancel": ("cancel {ran} --reason enough --storage {store}",),
    "plan": (
        "plan spec.json --cluster 2xCPU4 --storage {store}",
        "plan done.json --key k --storage {store}",
        "plan keyed.json --storage {bounded}",
    ),
    "budget": ("budget agent --storage {store}",),
    "evidence": ("evidence flights@2026-11-24 --storage {line}",),
    "approve": ("approve flights@latest --reject --note no --storage {line}",),
    "rollback": ("rollback flights --to 2026-11-24 --why again --storage {line}",),
}
"""Other examples of the same documents."""
FAILING: Final = ("verify", "sweep", "attach", "register", "doctor", "retry", "approve")
"""Their document says what was found, and their exit code that it is not well."""
SPEC: Final[dict[str, Any]] = {
    "name": "s",
    "trainable": "examples.quick:steps",
    "param_space": {"x": {"uniform": [0, 1]}},
}
RUN: Final[dict[str, Any]] = SPEC | {
    "name": "ran",
    "trainable": "documented_trainable:f",
    "metric": "loss",
    "mode": "min",
    "num_samples": 2,
    "isolation": "inline",
    "max_concurrent_trials": 1,
    "scheduler": {"asha": {"max_t": 3, "grace_period": 3}},
}
CODE: Final = """
import pathlib, tempfile
import raysweep as rs

def f(config):
    begun = rs.get_checkpoint()
    for at in range(1 if begun is None else 4, 7):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "at").write_text(str(at))
            rs.report({"loss": config["x"] / at}, checkpoint=folder)

def breaks(config):
    raise KeyError("rate")
"""


class Prepared(dict[str, str]):
    """The values of a command line, each made when a command asks for it."""

    def __init__(self, root: Path, store_sweep: Callable[..., Stored], cli: Callable[..., Any]) -> None:
        super().__init__(store=str(root / "store"))
        self._root, self._store_sweep, self._cli = root, store_sweep, cli
        self._stored = store_sweep(is_ended=True)
        self._stored.end()
        self["sweep"] = self._stored.sweep_id
        other = store_sweep("other", is_ended=True)
        other.end()
        self["ended"] = other.sweep_id
        self._write_specs()

    def words(self, line: str) -> list[str]:
        """The words of an example, with `--json`."""
        words = [re.sub(r"\{(\w+)\}", lambda found: self[found[1]], word) for word in line.split()]
        return [*words, "--json"]

    def __missing__(self, name: str) -> str:
        self[name] = str(getattr(self, f"_{name}")())
        return self[name]

    def _write_specs(self) -> None:
        record = self._stored.folder.read_spec()
        assert record is not None
        plain = RUN | {"storage_path": self["store"]}
        files = {
            "spec": {**SPEC, "metric": "loss", "mode": "min", "num_samples": 2},
            "bad": {**SPEC, "num_samples": -1},
            "huge": {**SPEC, "resources": {"num_cpus": 64}},
            "elsewhere": {**SPEC, "trainable": "examples.nowhere:f", "metric": "loss", "mode": "min"},
            "done": record.spec,
            "changed": {**record.spec, "param_space": {"x": 1}},
            "ran": plain,
            "broken": plain | {"name": "broken", "trainable": "documented_trainable:breaks"},
            "keyed": plain | {"stop": {"budget_key": "agent", "budget": {"cpu_hours": 5}}},
            "train": {"name": "full", "trainable": "examples.quick:steps"},
            "pipeline": {"sweep": plain | {"name": "piped"}, "gate": {"confirm_top_k": 1, "seeds": 2}},
        }
        for name, document in files.items():
            (self._root / f"{name}.json").write_text(json.dumps(document))
        (self._root / "documented_trainable.py").write_text(CODE)

    def _bounded(self) -> str:
        self._cli("budget", "agent", "--cpu-hours", "1", "--storage", self["store"])
        return self["store"]

    def _held(self) -> str:
        held = self._store_sweep("held")
        held.beat(current_holder())
        return held.sweep_id

    def _begun(self) -> str:
        return ODD["no metric"](Path(self["store"])).sweep_id

    def _scored(self) -> str:
        return ODD["one trial"](Path(self["store"])).sweep_id

    def _line(self) -> Path:
        at = self._root / "line"
        night(at, "2026-11-24", 0.5)
        night(at, "2026-11-25", 0.7)
        night(at, "2026-11-26", 0.9, approval=ApprovalSpec(timeout=3600))
        return at

    def _modelled(self) -> str:
        objects = open_store(self["line"])
        champion = read_champion(objects, LINE).champion
        assert champion is not None
        add_model(objects, LINE, release_id(LINE, champion.sweep_id, champion.at), "s3://b/model")
        return self["line"]

    def _kept(self) -> str:
        return self["store"]

    def _champion(self) -> str:
        stored = self._store_sweep("crowned", is_ended=True)
        night(Path(self["store"]), stored.sweep_id, 0.5)
        return stored.sweep_id

    def _training(self) -> str:
        spec = TrainSpec.model_validate(json.loads((self._root / "train.json").read_text()))
        folder = RunFolder(open_store(self["store"]), RunId.of(spec, "k").id)
        begin_training(folder, spec, "k")
        folder.write_outcome(
            TrainOutcome(run_id=folder.run_id, name="full", status="completed", started_at=0.0, ended_at=1.0)
        )
        return folder.run_id

    def _trained(self) -> str:
        assert self["training"]
        return self["store"]

    def _checkpoint(self) -> str:
        given = self._root / "given"
        given.mkdir()
        (given / "weights").write_bytes(b"w" * 100_000)
        return CheckpointStore(open_store(self["store"]), self["sweep"]).save("00002", 9, given).uri

    def _torn(self) -> str:
        uri = self["checkpoint"]
        files = (path for path in Path(self["store"]).rglob("*") if path.is_file())
        (weights,) = (path for path in files if path.stat().st_size == 100_000)
        weights.write_bytes(b"other")
        return uri

    def _ran(self) -> str:
        return self._run("ran")

    _saved = _ran

    def _broken(self) -> str:
        return self._run("broken")

    def _run(self, name: str) -> str:
        ran = self._cli("sweep", f"{name}.json", "--key", "k", "--here", "--json")
        found: str = json.loads(ran.out)["sweep_id"]
        return found

    def _drifting(self) -> str:
        return store(self._root / "drifting", drifting, **SWEEP)[1].uri

    def _token(self) -> str:
        ran = self._cli("plan", "spec.json", "--storage", self["store"], "--json")
        token: str = json.loads(ran.out)["token"]
        return token

    def _damaged(self) -> str:
        folder = self._store_sweep("damaged", is_ended=True).folder
        folder.store.put(f"{folder.sweep_id}/sweep.json", b"{")
        return folder.sweep_id
