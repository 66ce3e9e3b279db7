"""What must hold of the repository as a whole: its metadata, its set-up and its documents agree."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel

from devtools.tutorial import commands, files
from raysweep.schedulers.spec import SchedulerSpec
from raysweep.search.spec import SearchSpec
from raysweep.specs.policies import CheckpointPolicy, FailurePolicy, StopPolicy
from raysweep.specs.sweep import SweepSpec

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]


def tracked_text_files() -> dict[str, str]:
    """Text by path, of each tracked file but this one, which holds the patterns."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    paths = {name: ROOT / name for name in listing.stdout.decode().split("\0") if name}
    data = {name: path.read_bytes() for name, path in paths.items() if path.is_file() and path != HERE}
    return {name: text.decode(errors="replace") for name, text in data.items() if b"\0" not in text}


def requirement_names(requirements: list[str]) -> set[str]:
    """Normalised package names, without raysweep's own extras."""
    names = {re.split(r"[\[<>=!~; ]", line, maxsplit=1)[0] for line in requirements}
    return {re.sub(r"[-_.]+", "-", name).lower() for name in names} - {"raysweep"}


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {
        name: version
        for name, version in (line.split(" ;")[0].strip().split("==") for line in lines)
        if name in {"ray", "apache-airflow", "prefect", "sqlalchemy"}
    }


def test_no_tracked_file_names_a_package_index() -> None:
    index = r"(index-url|extra-index|find-links|registry)[ =:\"']+(https?|file)://"
    pattern = re.compile(index + r"|pypi\.org/simple", re.IGNORECASE)
    assert [name for name, text in tracked_text_files().items() if pattern.search(text)] == []


def test_no_tracked_file_names_a_path_of_one_machine() -> None:
    pattern = re.compile(r"(^|[^\w.])/(work|farm|home/\w+|root|Users/\w+)/", re.MULTILINE)
    assert [name for name, text in tracked_text_files().items() if pattern.search(text)] == []


def test_ci_runs_the_test_command_of_the_readme() -> None:
    section = (ROOT / "README.md").read_text().split("\n## Test\n", 1)[1].split("\n## ", 1)[0]
    command = section.split("```\n", 2)[1].strip()
    assert command == "make test"
    script = (ROOT / ".ci/run").read_text()
    assert f'test_command="{command}"' in script
    assert re.search(r"^\$test_command ", script, re.MULTILINE)
    assert re.search(r"^make check$", script, re.MULTILINE)


def test_ci_script_is_executable() -> None:
    assert (ROOT / ".ci/run").stat().st_mode & 0o111


@pytest.mark.parametrize(
    ("package", "series"),
    [("ray", "2.60."), ("apache-airflow", "3.3."), ("prefect", "3.7."), ("sqlalchemy", "2.0.")],
)
def test_constraints_hold_what_decides_the_rest(package: str, series: str) -> None:
    assert pins()[package].startswith(series)


def test_constraints_are_plain_pins() -> None:
    odd = [
        line
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if not re.fullmatch(r"[a-z0-9-]+==[0-9a-z.]+( ; .+)?", line)
    ]
    assert odd == [], "no addresses, no options, no local versions"


def test_constraints_cover_every_dependency() -> None:
    pinned = {line.split("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert requirement_names(all_requirements()) - pinned == set()


def all_requirements() -> list[str]:
    extras = PROJECT["optional-dependencies"]
    return [*PROJECT["dependencies"], *(line for lines in extras.values() for line in lines)]


def test_dependencies_page_lists_exactly_the_dependencies() -> None:
    page = (ROOT / "docs/dependencies.md").read_text()
    # The package stands in the first column, or in the second where the first names the extra.
    listed = set(re.findall(r"^\| (?:`[a-z`, ]+` \| )?`([\w-]+)` \| [^`|]", page, re.MULTILINE))
    build = requirement_names(PYPROJECT["build-system"]["requires"])
    assert listed == requirement_names(all_requirements()) | build | {"uv"}


def test_changelog_begins_with_unreleased() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "[Unreleased]"


def test_every_decision_is_in_the_index_and_in_the_navigation() -> None:
    decisions = {path.name for path in (ROOT / "docs/adr").glob("[0-9]*.md")}
    index = (ROOT / "docs/adr/index.md").read_text()
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert decisions
    assert {name for name in decisions if f"]({name})" not in index} == set()
    assert {name for name in decisions if f"adr/{name}" not in navigation} == set()


def test_the_first_page_lists_every_page_and_the_readme_leads_there() -> None:
    docs = ROOT / "docs"
    pages = {str(path.relative_to(docs)) for path in (*docs.glob("*.md"), *docs.glob("guides/*.md"))} - {
        "index.md"
    }
    text = (docs / "index.md").read_text()
    assert not sorted(page for page in pages if f"({page}" not in text)
    readme = (ROOT / "README.md").read_text()
    assert "(docs/index.md)" in readme
    assert readme.count("\n") < 150


def test_the_tutorial_ends_with_the_report_on_the_screen() -> None:
    assert {"digits.yaml", "digits_model/train.py", "final.yaml", "results.py"} <= files().keys()
    assert commands()[-1] == "raysweep report digits --open"


def test_airflow_package_has_the_version_of_the_distribution() -> None:
    text = (ROOT / "operators/raysweep_airflow/__init__.py").read_text()
    assert f'__version__ = "{PROJECT["version"]}"' in text


@pytest.mark.parametrize(
    "package", ["engine/raysweep", "operators/raysweep_airflow", "flows/raysweep_prefect"]
)
def test_packages_are_marked_as_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


def test_devtools_are_in_no_wheel() -> None:
    packages = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert packages == ["engine/raysweep", "operators/raysweep_airflow", "flows/raysweep_prefect"]


def test_pages_say_what_needs_a_checkout() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs/guides").glob("*.md")]
    needs = {
        page
        for page in pages
        if re.search(r"^make [\w-]+ *(#|$)|`make |devtools", page.read_text(), re.MULTILINE)
    }
    assert len(needs) > 3
    assert {page.name for page in needs if "checkout" not in page.read_text()} == set()


def test_python_of_the_readme_compiles() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        compile(block, "README.md", "exec")


def models_of_the_guide() -> dict[str, type[BaseModel]]:
    return {
        "": SweepSpec,
        "failure.": FailurePolicy,
        "checkpoint.": CheckpointPolicy,
        "stop.": StopPolicy,
        **{f"(scheduler: {kind})": options for kind, options in SchedulerSpec.kinds.items()},
        **{f"(search: {kind})": options for kind, options in SearchSpec.kinds.items()},
    }


@pytest.mark.parametrize("prefix", sorted(models_of_the_guide()))
def test_guide_names_every_field_of_the_spec(prefix: str) -> None:
    guide = (ROOT / "docs/guides/sweep-spec.md").read_text()
    named = "" if prefix.startswith("(") else prefix
    fields = models_of_the_guide()[prefix].model_fields
    assert {name for name in fields if f"`{named}{name}`" not in guide} == set()


@pytest.mark.parametrize("page", ["README.md", "docs/guides/sweep-spec.md"])
def test_spec_of_the_page_is_valid(page: str) -> None:
    block = re.search(r"```yaml\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert block is not None
    assert SweepSpec.from_yaml(block.group(1)).scheduler.kind == "asha"
