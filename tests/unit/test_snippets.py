"""`make check` finds broken snippets of the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.snippets import find, main, of_page

ROOT = Path(__file__).resolve().parents[2]


def test_the_documentation_has_no_broken_snippet() -> None:
    assert [str(each) for each in find(ROOT)] == []


@pytest.mark.parametrize(
    ("block", "line", "found"),
    [
        ("python\nimport raysweep as rs\nrs.run_swep(spec)", 5, "raysweep has no run_swep"),
        ("python\nfrom raysweep.jobs import Clustre", 4, "raysweep.jobs has no Clustre"),
        ("python\nfrom raysweep.jbos import Cluster", 4, "there is no module raysweep.jbos"),
        ("python\nx = 1\ndef f(:", 5, "not Python: invalid syntax"),
        ("yaml\nstop: {deadlin: 06:00 Europe/Berlin}", 4, "stop.deadlin: unknown field 'deadlin'"),
        (
            "yaml\nscheduler: {asha: {max_t: 3, grace_period: 9}}",
            4,
            "scheduler.asha.grace_period: 9 is above max_t",
        ),
        ("yaml\nsweep: a.yaml\ngate: {seeds: none}\ntrain: b.yaml", 4, "gate.seeds"),
        ("yaml\na: [1", 4, "YAML: not valid YAML at line"),
        ("bash\nraysweep sweep s.yaml \\\n  --kee first", 4, "raysweep sweep: No such option"),
        ("\n$ raysweep swep s.yaml", 4, "raysweep has no command swep"),
        ("bash\nraysweep trials 'a", 4, "raysweep: No closing quotation"),
    ],
)
def test_a_planted_snippet_is_found(block: str, line: int, found: str) -> None:
    (problem,) = of_page("docs/page.md", f"# A page\n\n```{block}\n```\n")
    assert problem.line == line
    assert problem.found.startswith(found)


@pytest.mark.parametrize(
    "block",
    [
        "python\nimport raysweep as rs\nawait rs.load(...)",
        'python\n# registry.py\n    "a": "raysweep.a:A",',
        "yaml\nstop: {time_budget_s: 60}",
        'yaml\nwhere: ["a < b"]',
        "yaml\nsweep: a.yaml\ngate: {seeds: 2}\ntrain: b.yaml",
        "yaml\napiVersion: ray.io/v1\nkind: RayJob",
        "bash\nraysweep trials night@latest --csv > trials.csv\nls --unknown",
        "text\nraysweep swep",
    ],
)
def test_parts_of_files_and_other_documents_are_sound(block: str) -> None:
    assert list(of_page("docs/page.md", f"```{block}\n```\n")) == []


def test_a_broken_snippet_fails_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "docs/page.md"
    page.parent.mkdir()
    page.write_text("```bash\nraysweep best night@latest\n```\n")
    assert main([str(tmp_path)]) == 0
    page.write_text("```bash\nraysweep bets night@latest\n```\n")
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().out == "docs/page.md:2: raysweep has no command bets: mend the snippet\n"
    assert "$(BIN)/python -m devtools.snippets" in (ROOT / "Makefile").read_text()
