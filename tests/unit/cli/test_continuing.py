"""`retry`, `extend`, `restart`, `rm`: what they refuse, and with which words. What they do: tests/engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from raysweep.cli import main
from raysweep.outcome import Holder
from raysweep.runs.ownership.holder import current_holder
from tests.unit.cli.conftest import Ran, Stored

Cli = Callable[..., Ran]
Store = Callable[..., Stored]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("retry", "{id}", "--trial", "0"), "trial 0 of {id} is completed; failed have: 1"),
        (("retry", "{id}", "--trial", "77"), "trial 77 of {id} does not exist; failed have: 1"),
        (("retry", "{id}", "--trial", "1", "--failed"), "give --failed or --trial, not both"),
        (
            ("extend", "{id}", "--max-t", "9", "--top", "1"),
            "{id} has not ended; end it first: raysweep resume {id}",
        ),
        (("extend", "{id}", "--max-t", "9"), "requires top or trials; give either top or trials"),
        (("extend", "{id}", "--max-t", "9", "--top", "1", "--trial", "2"), "give either top or trials"),
        (("rm", "{id}"), "there is no terminal to ask whether to remove it; give --yes"),
    ],
)
def test_what_is_refused(arguments: tuple[str, ...], expected: str, cli: Cli, store_sweep: Store) -> None:
    stored = store_sweep()
    files = sorted(info.key for info in stored.folder.store.list(stored.sweep_id))
    storage = ("--storage", stored.folder.store.url)
    ran = cli(*(each.format(id=stored.sweep_id) for each in arguments), *storage)
    assert ran.code == 2
    assert expected.format(id=stored.sweep_id) in ran.err
    assert sorted(info.key for info in stored.folder.store.list(stored.sweep_id)) == files


@pytest.mark.parametrize("verb", [("retry",), ("extend", "--max-t", "9", "--top", "1")])
def test_a_cancelled_sweep_is_resumed_first(verb: tuple[str, ...], cli: Cli, store_sweep: Store) -> None:
    stored = store_sweep()
    stored.end()
    ran = cli(verb[0], stored.sweep_id, *verb[1:], "--storage", stored.folder.store.url)
    assert ran.code == 2
    assert "ended as cancelled; resume it first: add --resume-cancelled" in ran.err


@pytest.mark.parametrize("verb", [("retry",), ("restart",), ("rm", "--yes")])
def test_one_that_runs_is_left_alone(verb: tuple[str, ...], cli: Cli, store_sweep: Store) -> None:
    stored = store_sweep()
    stored.beat(current_holder())
    ran = cli(verb[0], stored.sweep_id, *verb[1:], "--storage", stored.folder.store.url)
    assert ran.code == 5
    assert "is held by a live controller" in ran.err
    assert stored.folder.read_spec() is not None


def test_removed_when_the_answer_is_yes(
    cli: Cli, store_sweep: Store, gone_holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A patch, as there is no terminal here."""
    stored = store_sweep()
    stored.beat(gone_holder)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    answers = iter([False, True])
    monkeypatch.setattr("typer.confirm", lambda text, err: next(answers))
    no = cli("rm", stored.sweep_id, "--storage", stored.folder.store.url)
    assert no.code == 3
    assert "interrupted, " in no.err
    assert stored.folder.read_spec() is not None
    yes = cli("rm", stored.sweep_id, "--storage", stored.folder.store.url, "--json")
    assert json.loads(yes.out) == {"schema_version": 1, "sweep_id": stored.sweep_id, "removed": True}
    assert stored.folder.read_spec() is None


@pytest.mark.parametrize(
    ("more", "is_ended", "would", "changed"),
    [
        ({}, False, "unfinished: it would be resumed", []),
        ({"num_samples": 9}, False, "unfinished: it would be resumed", ["num_samples: 4 -> 9"]),
        ({"metric": "auc"}, False, "unfinished: it would be refused", ['metric: "loss" -> "auc"']),
        ({}, True, "it would be returned as it is, and nothing run", []),
        ({"num_samples": 9}, True, "it would be refused", ["num_samples: 4 -> 9"]),
    ],
)
def test_plan_says_what_sweep_would_do(
    more: dict[str, Any],
    is_ended: bool,
    would: str,
    changed: list[str],
    cli: Cli,
    store_sweep: Store,
    gone_holder: Holder,
    tmp_path: Any,
) -> None:
    pytest.importorskip("ray")
    stored = store_sweep()
    stored.beat(gone_holder)
    if is_ended:
        stored.end()
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({**stored.state.spec.to_dict(), **more}))
    ran = cli("plan", spec, "--key", "k", "--json")
    assert ran.code == 0, ran.err
    plan = json.loads(ran.out)
    assert would in plan["state"]
    assert plan["changes"] == changed


@pytest.mark.parametrize("trainable", ["examples.quick:steps", "<python> train#0123456789"])
def test_status_proposes_what_works(
    trainable: str, cli: Cli, store_sweep: Store, gone_holder: Holder
) -> None:
    stored = store_sweep()
    stored.beat(gone_holder)
    path = stored.folder.store.local_path(f"{stored.sweep_id}/sweep.json")
    record = stored.folder.read_spec()
    assert record is not None
    assert path is not None
    from dataclasses import replace

    stored.folder.replace_spec(replace(record, spec={**record.spec, "trainable": trainable}))
    ran = cli("status", stored.sweep_id, "--storage", stored.folder.store.url)
    is_named = not trainable.startswith("<")
    assert (f"raysweep resume {stored.sweep_id}" in ran.out) == is_named
    assert ("run the program that started it again, with the key 'k'" in ran.out) == (not is_named)


@pytest.mark.parametrize("command", ["retry", "extend", "restart", "rm"])
def test_name_and_key_do_in_place_of_an_id(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    said = capsys.readouterr().out
    assert "--name NAME" in said
    assert "--key KEY" in said
