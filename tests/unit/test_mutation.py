"""`make mutants` itself: what it changes, what it draws, that it finds mutants out."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from tests.mutation import execution, population, scope
from tests.mutation.execution import laboratory
from tests.mutation.operators import changes
from tests.mutation.population import Mutant, differing, draw, equivalents, flat

ROOT = Path(__file__).parents[2]
FILE = "engine/raysweep/schedulers/small.py"
CODE = '''"""A module."""

LIMIT = 3


def is_over(number: int) -> bool:
    """Never called while tests are collected."""
    return number > LIMIT


def log(number: int) -> None:
    number + 1
'''
TEST = """from raysweep.schedulers.small import is_over


def test_small() -> None:
    assert is_over(4)
    assert not is_over(3)
"""


def mutations(code: str) -> set[tuple[str, str]]:
    """Operator, and what becomes of the code."""
    return {(change.operator, differing(code, change.code())[1].strip()) for change in changes(code)}


@pytest.mark.parametrize(
    ("code", "operator", "mutated"),
    [
        ("timer.cancel()\n", "leave_out", "pass"),
        ("async def f():\n    await store.delete(key)\n", "leave_out", "pass"),
        ("if armed: stop()\n", "negate", "if not (armed): stop()"),
        ("a = b if c else d\n", "negate", "a = b if not (c) else d"),
        ("def f():\n    return x\n", "return_nothing", "return None"),
        ("if a < b: pass\n", "swap", "if a <= b: pass"),
        ("if a == b: pass\n", "swap", "if a != b: pass"),
        ("if a and b: pass\n", "swap", "if a or b: pass"),
        ("a = 1\n", "number", "a = 2"),
        ("a = b\n", "assignment", "a = None"),
        ("a: int | None = b\n", "assignment", "a: int | None = None"),
        ("f(a, b)\n", "argument", "f(a, None)"),
        ("f(a, b)\n", "argument", "f(b)"),
        ("kind = 'ended'\n", "string", "kind = 'XXendedXX'"),
    ],
)
def test_what_is_changed(code: str, operator: str, mutated: str) -> None:
    assert (operator, mutated) in mutations(code)


@pytest.mark.parametrize(
    "code",
    [
        "raise ValueError(f'{name} is {1 + 2}')\n",
        "_log.warning('slot %s', 1)\n",
        "'''A text.'''\n",
        "a: dict[int, str | None]\n",
        "@dataclass(frozen=True)\nclass A: pass\n",
        "zip(strict=True)[0]\n",
        "from a import b\n",
        "if TYPE_CHECKING:\n    a = 1\n",
    ],
)
def test_what_is_left_alone(code: str) -> None:
    assert mutations(code) - {("number", "zip(strict=True)[1]")} == set()


def test_what_mypy_would_refuse_is_no_mutant() -> None:
    assert ("assignment", "a: bool = None") not in mutations("a: bool = False\n")


def test_a_text_with_spaces_is_for_people() -> None:
    assert not any(operator == "string" for operator, _ in mutations("f('more than one word')\n"))


def test_the_seed_decides() -> None:
    files = [f"{scope.ENGINE}/schedulers/asha.py"]

    def drawn(seed: int) -> list[Mutant]:
        return list(islice(draw(ROOT, files, seed), 5))

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    assert all(mutant.before != mutant.after for mutant in drawn(1))


def test_a_sample_stays_while_other_lines_change(tmp_path: Path) -> None:
    lines = [f"def f{n}(x):\n    return x + {n}\n" for n in range(8)]

    def drawn() -> list[str]:
        return [mutant.after for mutant in draw(tmp_path, ["module.py"], seed=1)]

    (tmp_path / "module.py").write_text("\n\n".join(lines))
    before = drawn()
    (tmp_path / "module.py").write_text("\n\n".join(["y = [2, 3]\n", *lines]))
    assert [after for after in drawn() if after in set(before)] == before


def test_every_module_of_the_rooms_is_in_scope_or_says_why_not() -> None:
    found = scope.files(ROOT)
    assert f"{scope.ENGINE}/core/machine.py" in found
    assert [name for name in scope.OUT_OF_SCOPE if not (ROOT / scope.ENGINE / name).is_file()] == []
    assert [test for test in scope.tests_of(found) if not (ROOT / test).exists()] == []
    assert {scope.stages_of(file) for file in found} == set(scope.TESTS.values())


@pytest.mark.parametrize(
    "entry", equivalents(), ids=lambda entry: f"{Path(entry.file).stem}-{entry.operator}"
)
def test_every_equivalent_is_still_a_mutant(entry: population.Equivalent) -> None:
    assert len(entry.reason) > 10
    code = (ROOT / entry.file).read_text()
    assert entry.likeness in likenesses(code, entry), "the line has changed: look again"


def likenesses(code: str, entry: population.Equivalent) -> Iterator[tuple[str, str, str, str]]:
    """Of the mutants of a module by that operator, those first that begin on one of the entry's lines."""
    lines, wanted = code.splitlines(), {line.strip() for line in entry.before.splitlines()}
    same = [change for change in changes(code) if change.operator == entry.operator]
    for change in sorted(same, key=lambda change: lines[change.line - 1].strip() not in wanted):
        yield entry.file, entry.operator, *map(flat, differing(code, change.code()))


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one module, one test and the tool itself."""
    root = tmp_path_factory.mktemp("repository")
    for name, text in {
        FILE: CODE,
        "engine/raysweep/__init__.py": "",
        "engine/raysweep/schedulers/__init__.py": "",
        "tests/unit/schedulers/test_small.py": TEST,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    shutil.copytree(ROOT / "tests/mutation", root / "tests/mutation")
    (root / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = ["--import-mode=importlib"]\n')
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    return root


def small(before: str, after: str) -> Mutant:
    return Mutant(FILE, 1, "by hand", before, after, CODE.replace(before, after))


@pytest.mark.slow
def test_mutants_are_found_out_and_the_checkout_stays_as_it_is(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Swapped in or imported anew; one that hangs; one that no test sees."""
    monkeypatch.setattr(execution, "GRACE_S", 5.0)
    monkeypatch.setattr(scope, "TESTS", {"schedulers": (("tests/unit/schedulers",),)})
    with laboratory(repository, tmp_path, [FILE]) as lab:
        assert lab.baseline()["code"] == 0
        results = [
            lab.test(small(before, after))
            for before, after in [
                ("number > LIMIT", "number >= LIMIT"),
                ("LIMIT = 3", "LIMIT = 4"),
                ("return number > LIMIT", "while True: pass"),
                ("number + 1", "number - 1"),
                ("LIMIT = 3", "LIMIT = 1 / 0"),
            ]
        ]
    assert [result.fate for result in results] == ["killed", "killed", "hung", "survived", "killed"]
    assert results[0].by == results[1].by == "tests/unit/schedulers/test_small.py::test_small"
    assert (tmp_path / FILE).read_text() == (repository / FILE).read_text() == CODE
