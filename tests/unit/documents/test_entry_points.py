"""Names that installed packages give to classes: how they are found, and what is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from raysweep.cli import main
from raysweep.errors import SpecError
from raysweep.schedulers import load_scheduler
from raysweep.search import load_searcher
from raysweep.specs import SweepSpec

GROUPS = {
    "scheduler": "raysweep.schedulers",
    "search": "raysweep.searchers",
    "callbacks": "raysweep.callbacks",
}


def install(folder: Path, package: str, field: str, name: str, path: str) -> None:
    """What pip leaves of a package: its metadata."""
    place = folder / f"{package}-1.0.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (place / "entry_points.txt").write_text(f"[{GROUPS[field]}]\n{name} = {path}\n")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return folder


def spec(**fields: object) -> SweepSpec:
    plain = {"name": "s", "trainable": "m:f", "param_space": {"x": {"uniform": [0, 1]}}, "metric": "m"}
    return SweepSpec.model_validate({**plain, "mode": "min", **fields})


@pytest.mark.parametrize("field", ["scheduler", "search"])
def test_a_name_is_stored_as_the_path_of_its_class(packages: Path, field: str) -> None:
    given = {"mine": {"at": 3}}
    with pytest.raises(SpecError, match=rf"{field}: 'mine' is not known here"):
        spec(**{field: given})
    install(packages.parent / "more", "pack", field, "mine", "tests.unit.plugins:StopsOdd")
    import sys

    sys.path.insert(0, str(packages.parent / "more"))
    try:
        made = spec(**{field: given})
    finally:
        sys.path.remove(str(packages.parent / "more"))
    assert made.to_dict()[field] == {"tests.unit.plugins:StopsOdd": {"at": 3}}
    assert SweepSpec.model_validate(made.to_dict()) == made, "what is stored needs no package"


def test_callbacks_have_names_too(packages: Path) -> None:
    install(packages, "pack", "callbacks", "writes", "tests.unit.delivery.callbacks:Writes")
    (callback,) = spec(callbacks=[{"writes": {"path": "x"}}]).callbacks
    assert callback.kind == "tests.unit.delivery.callbacks:Writes"


def test_a_name_that_two_packages_give_is_refused(packages: Path) -> None:
    install(packages, "first", "search", "mine", "first:Mine")
    install(packages, "second", "search", "mine", "second:Mine")
    said = (
        r"search: several packages offer 'mine': first 1\.0 \(first:Mine\) and second 1\.0 \(second:Mine\); "
        r'name the class: "first:Mine", or uninstall one of them'
    )
    with pytest.raises(SpecError, match=said):
        spec(search="mine")


def test_a_name_of_raysweep_wins(packages: Path) -> None:
    install(packages, "pack", "search", "random", "pack:Mine")
    assert not spec(search="random").search.is_plugin


def test_a_plan_names_what_a_name_of_raysweep_hides(
    packages: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(packages, "pack", "search", "random", "pack:Mine")
    asked = spec(search="random", trainable="json:dumps", storage_path=str(tmp_path), num_samples=2)
    file = tmp_path / "spec.yaml"
    file.write_text(asked.to_yaml())
    assert main(["plan", str(file), "--cluster", "1xCPU4"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "from search random: raysweep; hides random of pack 1.0 (pack:Mine)" in lines


def test_what_is_no_import_path_is_refused(packages: Path) -> None:
    install(packages, "pack", "search", "mine", "packmodule")
    with pytest.raises(
        SpecError, match=r"search: the entry point mine of pack 1\.0 is 'packmodule': .*; correct it"
    ):
        spec(search="mine")


def test_what_cannot_be_loaded_names_the_entry_point(packages: Path) -> None:
    install(packages, "pack", "search", "mine", "no_such_module_here:Mine")
    with pytest.raises(
        SpecError, match=r"search: the entry point mine of pack 1\.0 cannot be loaded: .*no_such"
    ):
        load_searcher(spec(search="mine"))


def test_a_near_name_is_suggested(packages: Path) -> None:
    install(packages, "pack", "search", "climber", "pack:Climber")
    with pytest.raises(SpecError, match="did you mean 'climber'"):
        spec(search="climbr")


def test_a_class_that_only_looks_like_one_is_refused() -> None:
    said = (
        r"scheduler: 'tests.unit.plugins:LooksLikeOne' is not a subclass of raysweep\.schedulers\.Scheduler; "
        r"write class LooksLikeOne\(Scheduler\), with from raysweep\.schedulers import Scheduler"
    )
    with pytest.raises(SpecError, match=said):
        load_scheduler(spec(scheduler="tests.unit.plugins:LooksLikeOne"))


def test_a_searcher_has_to_ask() -> None:
    with pytest.raises(SpecError, match=r"search: 'tests.unit.plugins:Silent' has no ask"):
        load_searcher(spec(search="tests.unit.plugins:Silent"))
