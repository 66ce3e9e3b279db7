"""Counts the structure of the code base: `make structure` prints it, `make check` holds fifteen figures.

The figures come from the source alone: no code of the engine is imported. So the script also runs on another
checkout (`python -m devtools.structure PATH`), to compare two versions.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from devtools.prose import hidden_imports, reads_of
from devtools.sizes import code_lines, commands, flags, options

PACKAGE: Final = "raysweep"
FACES: Final = {"operators": "raysweep_airflow", "flows": "raysweep_prefect"}
"""The other packages, by their folder."""
# `--check` fails when one of these figures is larger. Lower a limit when a change makes its figure smaller.
LIMITS: Final = {
    "import circles": 0,
    "names of policies outside their files": 0,
    "private imports of Ray": 0,
    "branches by behaviour": 0,
    "imports of a test module by another": 0,
    "files over 500 lines": 0,
    "code that reads a sentence": 0,
    "imports by a text outside registries": 0,
    "models of a run's standing": 4,
    "objects of an ended run": 2,
    "durable primitives": 3,
    "options of specs": 416,
    "options of the command line": 105,
    "commands": 39,
    "code lines of engine, operators, flows": 84000,
}
MAX_LINES: Final = 500
DURABLE: Final = {
    "journal": "journals",
    "put_if_absent": "objects written once",
    "put_if_version": "objects replaced by version",
    "append_attempt": "logs of attempts",
}
"""Durable primitives, by the name that tells one."""
JOURNAL: Final = f"{PACKAGE}.storage.journal.journal"
SOURCES: Final = ("benchmarks", "dags", "devtools", "engine", "examples", "flows", "operators", "tests")
PRIVATE_RAY: Final = re.compile(r"ray(\.\w+)*\.(_\w+|core\.generated)\b")


@dataclass(frozen=True, slots=True)
class Module:
    """One source file: its dotted name, path, tree and number of lines."""

    name: str
    path: Path
    tree: ast.Module
    lines: int


@dataclass(slots=True)
class Report:
    """The figures, and for each that `--check` holds the places that were counted."""

    figures: dict[str, str | int] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)

    def add(self, name: str, places: list[str]) -> None:
        """A figure that is the number of these places."""
        self.figures[name], self.places[name] = len(places), places


def read_modules(engine: Path, package: str = PACKAGE) -> list[Module]:
    """Every module of a package. `engine` is the folder that holds it."""
    return [
        Module(
            ".".join(path.relative_to(engine).with_suffix("").parts).removesuffix(".__init__"),
            path,
            ast.parse(text := path.read_text(encoding="utf-8")),
            text.count("\n"),
        )
        for path in sorted((engine / package).rglob("*.py"))
    ]


def imports_of(module: Module, names: set[str]) -> set[str]:
    """The modules of `names` that a module imports, also inside functions and under TYPE_CHECKING."""
    found: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.update({whole} if whole in names else {node.module} & names)
    return found - {module.name}


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected parts of a graph that have more than one member (Tarjan 1972)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], order[other])
        if low[node] == order[node]:
            part = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(part) > 1:
                found.append(sorted(part))

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 10 * len(graph)))
    for node in sorted(graph):
        if node not in order:
            visit(node)
    sys.setrecursionlimit(limit)
    return sorted(found, key=len, reverse=True)


def longest_chain(graph: dict[str, set[str]], parts: list[list[str]]) -> int:
    """The number of modules in the longest chain of imports, each circle counted as one module."""
    home = {name: part[0] for part in parts for name in part}
    known: dict[str, int] = {}

    def depth(name: str) -> int:
        if name not in known:
            known[name] = 0
            members = [name] if name not in home else [m for m in home if home[m] == name]
            below = {home.get(other, other) for member in members for other in graph[member]} - {name}
            known[name] = 1 + max((depth(other) for other in below), default=0)
        return known[name]

    return max(depth(home.get(name, name)) for name in graph)


def policy_classes(modules: list[Module]) -> dict[str, str]:
    """The option class of each scheduler and searcher, and the module that defines it."""
    return {
        node.name: module.name
        for module in modules
        for node in module.tree.body
        if isinstance(node, ast.ClassDef)
        and node.name.endswith("Options")
        and not node.name.startswith("_")
        and re.search(r"\.(schedulers|search)\.", module.name)
        and not module.name.endswith(".options")  # the bases, which name no policy
    }


def names_of_policies(modules: list[Module]) -> Iterator[str]:
    """Uses of a policy's option class outside the rooms of policies and the lists of a package."""
    classes = policy_classes(modules)
    homes = set(classes.values())
    for module in modules:
        room = module.name.split(".")[1] if "." in module.name else ""
        if room in ("schedulers", "search") or module.path.stem == "__init__" or module.name in homes:
            continue
        names = {node.id for node in ast.walk(module.tree) if isinstance(node, ast.Name)}
        yield from (f"{module.name}: {name}" for name in sorted(names & classes.keys()))


def branches_by_behaviour(modules: list[Module]) -> Iterator[str]:
    """Comparisons with the behaviour of an earlier version."""
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Compare) and "behaviour" in ast.unparse(node.left):
                yield f"{module.name}:{node.lineno}"


def durable_primitives(modules: list[Module]) -> Iterator[str]:
    """The ways in which rooms beside `storage` keep what must outlive a crash, each with a user."""
    users: dict[str, str] = {}
    for module in modules:
        if module.name.startswith(f"{PACKAGE}.storage"):
            continue
        used = {node.attr for node in ast.walk(module.tree) if isinstance(node, ast.Attribute)}
        used |= {"journal"} if imports_of(module, {JOURNAL}) else set()
        for name in used & DURABLE.keys():
            users.setdefault(DURABLE[name], module.name)
    yield from (f"{name}: {user}" for name, user in sorted(users.items()))


def private_imports_of_ray(modules: list[Module]) -> Iterator[str]:
    """Imports of private parts of Ray outside `raycompat`."""
    for module in modules:
        if module.name.startswith(f"{PACKAGE}.raycompat"):
            continue
        for node in ast.walk(module.tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (f"{module.name}: {name}" for name in names if PRIVATE_RAY.match(name))


def read_tests(root: Path) -> list[Module]:
    """Every Python file of the tests at `root`, which lie in `tests/`."""
    return [
        Module(
            ".".join(path.relative_to(root).with_suffix("").parts),
            path,
            ast.parse(text := path.read_text(encoding="utf-8")),
            text.count("\n"),
        )
        for path in sorted((root / "tests").rglob("*.py"))
    ]


def imports_of_tests(tests: list[Module]) -> Iterator[str]:
    """Imports of a `test_*` module by another file of the tests: a helper belongs in a module of its own."""
    names = {module.name for module in tests if module.path.stem.startswith("test_")}
    for module in tests:
        yield from (f"{module.name}: {name}" for name in sorted(imports_of(module, names)))


def long_files(root: Path) -> Iterator[str]:
    """Python files of any room that are too long to be read in one go."""
    for path in sorted(path for room in SOURCES for path in (root / room).rglob("*.py")):
        lines = path.read_bytes().count(b"\n")
        if lines > MAX_LINES:
            yield f"{path.relative_to(root)}: {lines} lines"


def function_lengths(modules: list[Module]) -> list[int]:
    """The number of lines of each function."""
    return sorted(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def most_fields(modules: list[Module], name: str) -> int:
    """The number of annotated fields of the class of this name; 0 where there is none."""
    return max(
        (
            sum(isinstance(line, ast.AnnAssign) for line in node.body)
            for module in modules
            for node in ast.walk(module.tree)
            if isinstance(node, ast.ClassDef) and node.name == name
        ),
        default=0,
    )


def standings(modules: list[Module]) -> Iterator[str]:
    """The classes that say of a run what its name is, how it stands and when it began."""
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                lines = (line.target for line in node.body if isinstance(line, ast.AnnAssign))
                names = {target.id for target in lines if isinstance(target, ast.Name)}
                if names >= {"name", "status", "started_at"}:
                    yield f"{module.name}: {node.name}"


def objects_of_an_end(modules: list[Module]) -> Iterator[str]:
    """The objects in `ENDED` of `runs/folder.py`; a test holds that an ended sweep stores just these."""
    for module in modules:
        for node in module.tree.body if module.name == f"{PACKAGE}.runs.folder" else ():
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "ENDED" and node.value:
                yield from ast.literal_eval(node.value)


def most_methods(modules: list[Module]) -> str:
    """The five classes with the most methods."""
    counted = (
        (sum(isinstance(line, ast.FunctionDef | ast.AsyncFunctionDef) for line in node.body), node.name)
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
    )
    return ", ".join(f"{number} {name}" for number, name in sorted(counted, reverse=True)[:5])


def spread(lengths: list[int]) -> str:
    """Median and 95th percentile of sorted numbers."""
    return f"{statistics.median(lengths):.0f} {lengths[int(len(lengths) * 0.95)]}"


def words(texts: list[str]) -> int:
    """The number of words in all texts."""
    return sum(len(text.split()) for text in texts)


def count(root: Path) -> Report:
    """All figures of the checkout at `root`."""
    modules = read_modules(root / "engine")
    report = Report()
    folders: dict[str, list[Module]] = {}
    for module in modules:
        folders.setdefault(str(module.path.parent.relative_to(root / "engine")), []).append(module)
    graph = {module.name: imports_of(module, {each.name for each in modules}) for module in modules}
    importers = {name: sum(name in others for others in graph.values()) for name in graph}
    parts = circles(graph)
    lengths, functions = sorted(module.lines for module in modules), function_lengths(modules)
    largest = max(folders, key=lambda folder: len(folders[folder]))
    report.figures |= {
        "engine files": len(modules),
        "engine lines": sum(lengths),
        "largest folder": f"{largest} {len(folders[largest])}",
        "loose modules at the top": len(folders[PACKAGE]) - 1,
        "files under 60 lines with one importer": sum(
            module.lines < 60 and importers[module.name] == 1 for module in modules
        ),
        "file lines, median and 95th percentile": spread(lengths),
        "function lines, median and 95th percentile": spread(functions),
        "most methods of a class, five largest": most_methods(modules),
        "fields of SweepState, Rules, Trial": " ".join(
            str(most_fields(modules, name)) for name in ("SweepState", "Rules", "Trial")
        ),
        "longest chain of imports": longest_chain(graph, parts),
    }
    report.add("import circles", [f"{len(part)} modules: {' '.join(part)}" for part in parts])
    report.add("names of policies outside their files", list(names_of_policies(modules)))
    report.add("private imports of Ray", list(private_imports_of_ray(modules)))
    report.add("models of a run's standing", list(standings(modules)))
    report.add("objects of an ended run", list(objects_of_an_end(modules)))
    report.add("branches by behaviour", list(branches_by_behaviour(modules)))
    report.add("durable primitives", list(durable_primitives(modules)))
    tests = read_tests(root)
    report.add("imports of a test module by another", list(imports_of_tests(tests)))
    report.add("files over 500 lines", list(long_files(root)))
    faces = [*modules, *(each for room in FACES for each in read_modules(root / room, FACES[room]))]
    reads = [place for each in faces for place in reads_of(each.name, each.tree)]
    report.add("code that reads a sentence", reads)
    trees = {module.name: module.tree for module in modules}
    report.add("options of specs", list(options(trees)))
    report.add("options of the command line", list(flags(trees)))
    report.add("commands", list(commands(trees)))
    report.figures["code lines of engine, operators, flows"] = sum(
        code_lines(module.path.read_text(encoding="utf-8"), module.tree) for module in faces
    )
    packages = (PACKAGE, *FACES.values())
    hidden = [place for each in faces for place in hidden_imports(each.name, each.tree, packages)]
    report.add("imports by a text outside registries", hidden)
    decisions = [path.read_text(encoding="utf-8") for path in (root / "docs/adr").glob("[0-9]*.md")]
    pages = [path.read_text(encoding="utf-8") for path in (root / "docs").rglob("*.md")]
    report.figures |= {
        "decisions (ADRs), and their words": f"{len(decisions)} {words(decisions)}",
        "words in docs": words(pages),
        "lines of CHANGELOG.md": (root / "CHANGELOG.md").read_text(encoding="utf-8").count("\n"),
    }
    return report


def over_limits(report: Report) -> list[str]:
    """The figures that are over their limit, one line each, with the places counted."""
    return [
        "\n  ".join((f"{name}: {report.figures[name]}, the limit is {limit}:", *report.places.get(name, ())))
        for name, limit in LIMITS.items()
        if int(report.figures[name]) > limit
    ]


def main() -> int:
    """Print the figures. Returns 1 with `--check` where one is over its limit."""
    parser = argparse.ArgumentParser(prog="python -m devtools.structure", description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=Path(), help="the checkout (default: here)")
    parser.add_argument("--check", action="store_true", help="print only figures over their limit")
    parser.add_argument("--places", action="store_true", help="name the places that were counted")
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    options = parser.parse_args()
    report = count(options.root)
    if options.check:
        lines = over_limits(report)
        sys.stdout.writelines(f"{line}\n" for line in lines)
        return int(bool(lines))
    if options.json:
        sys.stdout.write(json.dumps(report.figures, indent=1) + "\n")
        return 0
    for name, value in report.figures.items():
        sys.stdout.write(f"{name:44} {value}\n")
        if options.places:
            sys.stdout.writelines(f"    {place}\n" for place in report.places.get(name, ()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
