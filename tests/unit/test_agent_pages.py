"""`docs/llms.txt` and `docs/skill.md` say what the command line's help and the errors say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from devtools import agent_pages
from devtools.agent_pages import OWN_CODES, main, pages
from raysweep.cli import main as raysweep
from raysweep.cli.app import app
from raysweep.cli.help_groups import EXAMPLES, GROUPS

ROOT = Path(__file__).resolve().parents[2]
LLMS, SKILL = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("llms.txt", "skill.md"))


def test_the_pages_are_those_that_the_help_makes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().out


def test_a_stale_page_is_named_and_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = pages()
    monkeypatch.setattr(agent_pages, "pages", lambda: made)
    monkeypatch.setattr(agent_pages, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/llms.txt").write_text(made["llms.txt"], encoding="utf-8")
    (tmp_path / "docs/skill.md").write_text("old")
    assert main(["--check"]) == 1
    assert capsys.readouterr().out == "docs/skill.md is stale: run python -m devtools.agent_pages\n"
    assert main([]) == main(["--check"]) == 0


def test_a_changed_help_makes_another_page(monkeypatch: pytest.MonkeyPatch) -> None:
    (command,) = (each for each in _commands() if each.callback.__name__ == "best")
    monkeypatch.setattr(command.callback, "__doc__", "Show the worst trial.")
    made = pages()
    assert "Show the worst trial." in made["llms.txt"]
    assert "Show the worst trial." in made["skill.md"]


def test_every_command_and_its_first_line_are_on_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert raysweep(["--help"]) == 0
    listed = re.findall(r"^  (\w+)  ", capsys.readouterr().out, re.MULTILINE)
    assert sorted(listed) == sorted(EXAMPLES) == sorted(name for names in GROUPS.values() for name in names)
    for name in listed:
        assert f"`{EXAMPLES[name]}`: " in LLMS
        assert f"| `{name}` | " in SKILL or f"\n### {name}\n" in SKILL


def test_the_codes_that_are_printed_are_listed() -> None:
    """Those that commands print beside the errors' own, wherever the engine says them."""
    calls = r"(?:print_document|\berror)\(\s*\"([a-z_]+)\""
    said = {code for path in (ROOT / "engine").rglob("*.py") for code in re.findall(calls, path.read_text())}
    assert said >= {"usage", "not_allowed"}
    assert {code for code in said if f"- `{code}` (exit code " not in LLMS} == set()
    assert set(OWN_CODES) - said == {"bug"} - said


def test_each_link_leads_to_a_page() -> None:
    links = re.findall(r"\]\(([^)]+)\)", LLMS)
    assert len(links) > 40
    for link in links:
        page = "index.md" if link == "./" else re.sub(r"/$", ".md", link)
        assert (ROOT / "docs" / page).is_file() or (ROOT / "docs" / link / "index.md").is_file(), link


def test_the_skill_has_the_front_matter_of_one_and_is_one_page() -> None:
    head = yaml.safe_load(SKILL.split("---\n")[1])
    assert set(head) == {"name", "description"}
    assert re.fullmatch(r"[a-z0-9-]{1,64}", head["name"])
    assert 0 < len(head["description"]) <= 1024
    assert len(SKILL.splitlines()) <= 150
    assert len(SKILL) < 8_000


def _commands() -> list[Any]:
    groups = [group.typer_instance for group in app.registered_groups]
    return [command for each in (app, *groups) if each for command in each.registered_commands]
