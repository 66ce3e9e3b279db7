# ruff: noqa: E501  (one case a line)
"""Trainables as references and back, and what is said when there is no way back."""

from __future__ import annotations

import functools
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import TrainableImportError
from raysweep.specs import SweepSpec, load_trainable, trainable_ref
from raysweep.specs.code_digest import code_digest, is_other_code

MODULE = '''
"""A module of a user."""
constant = 3

def train(config):
    return config

class Model:
    def fit(self, config):
        return config

    class Inner:
        pass
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An importable package of a name of its own."""
    name = f"pkg_{tmp_path.name.replace('-', '_')}"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "models.py").write_text(MODULE)
    (folder / "broken.py").write_text("import a_module_that_is_not_there\n")
    (folder / "invalid.py").write_text("def train(:\n")
    (folder / "angry.py").write_text('raise RuntimeError("two\\nlines")\n')
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    for module in [module for module in sys.modules if module.split(".")[0] == name]:
        del sys.modules[module]


@pytest.mark.parametrize(
    "form", ["{}.models:train", "{}.models.train", "{}.models:Model.fit", "{}.models.Model.Inner"]
)
def test_loads(package: str, form: str) -> None:
    loaded = load_trainable(form.format(package))
    assert trainable_ref(loaded) == form.format(package).replace("models.", "models:")


def test_a_top_level_module_without_a_colon() -> None:
    assert load_trainable("math.sqrt") is math.sqrt
    assert load_trainable(math.sqrt) is math.sqrt


@pytest.mark.parametrize(
    ("ref", "line"),
    [
        ("{}.models:trian", "trainable: module '{}.models' has no 'trian'; did you mean 'train'?"),
        ("{}.models.trian", "trainable: module '{}.models' has no 'trian'; did you mean 'train'?"),
        ("{}.models:zzz", "trainable: module '{}.models' has no 'zzz'; define it there, or name one of ['Model', 'train']"),
        ("{}.models:constant", "trainable: '{}.models:constant' is a int, which cannot be called; name a function or a class"),
        ("{}.modles:train", "trainable: no module '{}.modles'; did you mean '{}.models'?"),
        ("{}.broken:train", "trainable: importing '{}.broken' failed with ModuleNotFoundError: No module named 'a_module_that_is_not_there'; install 'a_module_that_is_not_there' here, or fix the import in {}.broken"),
        ("{}.angry:train", "trainable: importing '{}.angry' failed with RuntimeError: two lines; fix {}.angry, or install what it needs"),
        ("{}.models.deep:train", "trainable: importing '{}.models.deep' failed"),
        ("nowhere_at_all.models:train", "trainable: no module 'nowhere_at_all' (to import 'nowhere_at_all.models'); install it, or put its folder on PYTHONPATH"),
        ("nowhere_at_all.train", "trainable: no module 'nowhere_at_all'; install it, or put its folder on PYTHONPATH"),
        ("train", "trainable: 'train' names no module; write \"package.module:train\""),
        ("<python> main.<locals>.f#00", "trainable: 'main.<locals>.f' was defined in a script or another function and cannot be imported again; pass the callable itself, or move it into a module and name it module:function"),
    ],
)  # fmt: skip
def test_refused_in_one_line(package: str, ref: str, line: str) -> None:
    with pytest.raises(TrainableImportError) as caught:
        load_trainable(ref.replace("{}", package))
    text = str(caught.value)
    assert "\n" not in text
    if "failed" in line and "with" not in line:
        assert text.startswith((line.replace("{}", package), f"trainable: no module '{package}.models.deep'"))
    else:
        assert text == line.replace("{}", package)


def test_syntax_errors_name_the_module(package: str) -> None:
    with pytest.raises(TrainableImportError, match=r"invalid' failed with SyntaxError: .*; fix"):
        load_trainable(f"{package}.invalid:train")


def test_a_module_in_the_current_folder_that_python_does_not_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_own_models.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    with pytest.raises(TrainableImportError) as caught:
        load_trainable("my_own_models:train")
    assert f"set PYTHONPATH={tmp_path}" in str(caught.value)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(TrainableImportError, match="did you mean 'my_own_models'"):
        load_trainable("my_own_modles:train")


def _adder(amount: Any) -> Callable[[Any], Any]:
    def add(config: Any) -> Any:
        return config + amount

    return add


class _Caller:
    def __call__(self, config: Any) -> Any:
        return config


def test_what_cannot_be_imported_again_has_a_digest() -> None:
    refs = [
        trainable_ref(fn)
        for fn in (
            lambda config: 1,
            lambda config: 2,
            lambda config: [y + 1 for y in config],
            lambda config, more=1: config,
            lambda config, more=2: config,
            _adder(1),
            _adder(2),
            functools.partial(math.pow, 2),
            functools.partial(math.pow, 3),
            functools.partial(_adder(1)),
            _Caller(),
        )
    ]
    assert all(ref.startswith("<python> ") for ref in refs)
    assert len(set(refs)) == len(refs)
    assert trainable_ref(_adder(1)) == trainable_ref(_adder(1))
    assert trainable_ref(_Caller()) == trainable_ref(_Caller())


def test_the_digest_is_the_same_in_another_process_and_on_another_line() -> None:
    code = (
        "from raysweep.specs import trainable_ref\n"
        "def train(config):\n    return config['a'] in {'x', 'y', 'z'}, (lambda: 3)\n"
        "print(trainable_ref(train))\n"
    )
    seeds = [("1", code), ("2", "\n\n# moved\n" + code)]
    printed = {
        subprocess.run(
            [sys.executable, "-c", text],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed, text in seeds
    }
    assert len(printed) == 1
    assert printed.pop().startswith("<python> train#")


def test_a_callable_in_a_spec(fields: dict[str, Any], package: str) -> None:
    train = load_trainable(f"{package}.models:train")
    by_callable = SweepSpec(**{**fields, "trainable": train})
    by_name = SweepSpec(**{**fields, "trainable": f"{package}.models:train"})
    assert by_callable.trainable is train
    assert by_callable.digest() == by_name.digest()
    assert by_callable.to_json() == by_name.to_json()
    local = SweepSpec(**{**fields, "trainable": lambda config: 1})
    assert SweepSpec.from_json(local.to_json()).digest() == local.digest()
    assert local.digest() != SweepSpec(**{**fields, "trainable": lambda config: 2}).digest()


SCRIPT = """
import functools
from raysweep.specs.code_digest import code_digest
from raysweep.documents.code.trainable import trainable_name

def train(config):
    return {body}

print(trainable_name(train), code_digest(train), code_digest("{module}:train"))
"""


def run_script(folder: Path, module: str, body: str, *how: str) -> list[str]:
    (folder / f"{module}.py").write_text(SCRIPT.format(module=module, body=body))
    command = [sys.executable, *(how or [f"{module}.py"])]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize("how", [(), ("-m", "quickstart")])
def test_what_a_script_defines_has_the_name_that_others_import_it_by(
    tmp_path: Path, how: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, of_callable, of_name = run_script(tmp_path, "quickstart", "1", *how)
    assert name == "quickstart:train"
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "quickstart", raising=False)  # other tests may have loaded one of theirs
    assert of_callable == of_name == code_digest("quickstart:train")
    assert "quickstart" not in sys.modules
    spaced, _, same = run_script(tmp_path, "quickstart", "(1)  # a comment", *how)
    assert (spaced, same) == (name, of_name)
    edited, _, other = run_script(tmp_path, "quickstart", "2", *how)
    assert edited == name
    assert is_other_code(of_name, other)


def test_a_script_that_nobody_can_import_has_a_name_too(tmp_path: Path) -> None:
    (tmp_path / "my-script.py").write_text(SCRIPT.format(module="nothing", body="1"))
    command = [sys.executable, "my-script.py"]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert printed.startswith("<python> train#")


def test_the_code_of_what_a_package_defines_is_read_and_not_run(package: str) -> None:
    code = code_digest(f"{package}.models:train")
    assert code.startswith("source:")
    assert code != code_digest(f"{package}.models.Model.fit")
    assert code_digest(f"{package}.angry:train") == code_digest(f"{package}.invalid:train") == ""
    assert not [module for module in sys.modules if module.split(".")[0] == package]
    assert code_digest("tests.engine.trainables:steps").startswith("source:"), "in a namespace package"


def test_code_that_no_file_has_is_told_apart_as_compiled() -> None:
    one, two = code_digest(lambda config: 1), code_digest(lambda config: 2)
    assert is_other_code(one, two)
    assert code_digest(_adder(1)) == code_digest(_adder(1))
    assert is_other_code(code_digest(_adder(1)), code_digest(_adder(2)))


@pytest.mark.parametrize(
    ("was", "now"),
    [("", "source:1"), ("source:1", ""), ("compiled-3.11:1", "compiled-3.12:2"), ("source:1", "source:1")],
)
def test_what_cannot_be_compared_has_not_changed(was: str, now: str) -> None:
    assert not is_other_code(was, now)


def test_a_module_in_a_src_folder_says_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src" / "tumor").mkdir(parents=True)
    (tmp_path / "src" / "tumor" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        TrainableImportError, match=r"'tumor' is in src: pip install -e \. , or set PYTHONPATH="
    ):
        load_trainable("tumor:train")
