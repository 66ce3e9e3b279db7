"""`RAYSWEEP_TRAINABLES`: what a spec may name, at most."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.cluster.preparation import check_trainable
from raysweep.documents.code.allow_list import VARIABLE
from raysweep.errors import SpecError, TrainableImportError
from raysweep.jobs.code.portable import check_portable
from raysweep.runs.policies import load_policies
from raysweep.specs import SweepSpec, TrainSpec, load_trainable
from raysweep.worker.runner import load_by_reference

OWN = """
import functools, os, subprocess
from subprocess import call
def train(config): return {"loss": 0.0}
class Net:
    def fit(self, config): return {"loss": 0.0}
    def __call__(self, config): return {"loss": 0.0}
net = Net()
half = functools.partial(train)
hidden = functools.partial(functools.partial(call))
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package `own_code`, which the list allows, and `other_code`, which it does not."""
    for name in ("own_code", "own_code/deep", "other_code"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(OWN)
    (tmp_path / "own_code_too.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(VARIABLE, "own_code, elsewhere.mod:fit")
    for name in [name for name in sys.modules if name.startswith(("own_code", "other_code"))]:
        monkeypatch.delitem(sys.modules, name)


ALLOWED = ["own_code:train", "own_code.train", "own_code.deep:train", "own_code:net", "own_code:half"]
ALLOWED += ["own_code:Net.fit"]
REFUSED = [
    *("subprocess:call", "subprocess.call", "os:system", "builtins:exec", "builtins.exec"),
    *("own_code:call", "own_code.call", "own_code:subprocess.call", "own_code:os.system", "own_code:hidden"),
    *("other_code:train", "other_code.train", "own_code_too:train", "own_code_too.train"),
]  # fmt: skip
LOADERS = {"the specs' loader": load_trainable, "the workers' loader": load_by_reference}


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
@pytest.mark.parametrize("reference", ALLOWED)
def test_what_is_listed_is_loaded(reference: str, load: Any) -> None:
    assert callable(load(reference))


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
@pytest.mark.parametrize("reference", REFUSED)
def test_what_is_not_listed_is_refused(reference: str, load: Any) -> None:
    with pytest.raises(TrainableImportError) as caught:
        load(reference)
    assert caught.value.field == "trainable"
    assert f"is not among what {VARIABLE} allows here (own_code, elsewhere.mod:fit)" in str(caught.value)
    assert "name one of these, or add" in str(caught.value)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
def test_what_is_not_listed_is_not_imported(load: Any) -> None:
    """A module's own code runs when it is imported."""
    for reference in ("other_code:train", "other_code.train", "other_code.sub.train"):
        with pytest.raises(TrainableImportError, match="is not among"):
            load(reference)
    assert "other_code" not in sys.modules


@pytest.mark.usefixtures("own")
def test_one_name_can_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "own_code:call own_code:train")
    assert load_trainable("own_code:call")
    assert load_trainable("own_code:train")
    with pytest.raises(TrainableImportError, match="'own_code:net' is not among"):
        load_trainable("own_code:net")


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("text", [None, "", "  "])
def test_without_a_list_everything_may_be_named(monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    if text is None:
        monkeypatch.delenv(VARIABLE)
    else:
        monkeypatch.setenv(VARIABLE, text)
    assert load_trainable("other_code:train")


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("entry", ["*", "own-code", "own_code/train.py", "own_code.*", "a:b:c", ":x"])
def test_a_list_that_cannot_be_read_allows_nothing(monkeypatch: pytest.MonkeyPatch, entry: str) -> None:
    monkeypatch.setenv(VARIABLE, f"own_code,{entry}")
    with pytest.raises(SpecError, match="is not a module") as caught:
        load_trainable("own_code:train")
    assert caught.value.field == VARIABLE


def spec(**fields: Any) -> SweepSpec:
    given = {"name": "a", "trainable": "own_code:train", "metric": "loss", "mode": "min"}
    given |= {"param_space": {"x": {"uniform": [0, 1]}}}
    return SweepSpec.from_any(given | fields)


@pytest.mark.usefixtures("own")
def test_all_that_a_spec_names_is_looked_up() -> None:
    """Also the rules and functions: each of them is imported by who runs the sweep."""
    with pytest.raises(TrainableImportError, match="trainable: 'subprocess:call' is not among"):
        check_trainable("subprocess:call", is_local=False)
    with pytest.raises(TrainableImportError, match="trainable: 'subprocess:call' is not among"):
        check_portable(spec(trainable="subprocess:call"))
    train = {"name": "a", "trainable": "subprocess:call", "scaling": {"num_workers": 1}}
    with pytest.raises(TrainableImportError, match="trainable: 'subprocess:call' is not among"):
        check_portable(TrainSpec.from_any(train))
    train |= {"trainable": "own_code:train", "datasets": {"train": "subprocess:call"}}
    with pytest.raises(TrainableImportError, match=r"datasets\.train: 'subprocess:call' is not among"):
        check_portable(TrainSpec.from_any(train))
    with pytest.raises(SpecError, match="scheduler: 'subprocess:Popen' is not among"):
        load_policies(spec(scheduler={"subprocess:Popen": {}}))
    with pytest.raises(SpecError, match="search: 'subprocess:Popen' is not among"):
        load_policies(spec(search="subprocess:Popen"))
    with pytest.raises(SpecError, match="sample_from: 'subprocess:call' is not among"):
        _ = spec(param_space={"x": {"sample_from": "subprocess:call"}}).space


@pytest.mark.usefixtures("own")
def test_a_sweep_that_may_not_be_leaves_nothing(tmp_path: Path) -> None:
    """It is refused by whoever runs it, before a Ray is started or anything is written."""
    storage = tmp_path / "sweeps"
    with pytest.raises(TrainableImportError, match="'subprocess:call' is not among"):
        rs.run_sweep(spec(trainable="subprocess:call", storage_path=str(storage)), address="local")
    assert not list(storage.rglob("*.json"))


@pytest.mark.usefixtures("own")
def test_what_a_program_passes_is_its_own() -> None:
    def fit(config: dict[str, Any]) -> dict[str, float]:
        return {"loss": 0.0}

    for given in (fit, functools.partial(fit), print):
        assert load_trainable(given) is given
        check_trainable(given, is_local=True)
    with pytest.raises(TrainableImportError, match="was defined in a script"):
        load_trainable(rs.specs.trainable_ref(fit))
