"""The tools of `raysweep mcp`, by the SDK's client in this process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError

from raysweep.cli import consoles
from raysweep.mcp_server.server import make_server
from raysweep.specs.approval import ApprovalSpec
from tests.unit.mcp_server.conftest import in_client
from tests.unit.pages.sweeps import nights, store
from tests.unit.pipeline.gates import night

Ask = Callable[..., Any]
SPEC: dict[str, Any] = {
    "name": "agent",
    "trainable": "agent_trainable:f",
    "param_space": {"x": {"uniform": [0, 1]}},
    "metric": "loss",
    "mode": "min",
    "num_samples": 2,
    "isolation": "inline",
    "max_concurrent_trials": 1,
}
CODE = """
import raysweep as rs

def f(config):
    print('not a document')
    rs.report({'loss': config['x']})
"""


def test_each_tool_says_what_it_takes_and_whether_it_changes_anything() -> None:
    tools = {tool.name: tool for tool in in_client(make_server("/nowhere"), lambda c: c.list_tools()).tools}
    assert set(tools) == {
        "nights", "status", "best", "trials", "report", "compare", "evidence", "plan", "apply", "stop",
        "approve",
    }  # fmt: skip
    changing = {name for name, tool in tools.items() if not tool.annotations.read_only_hint}
    assert changing == {"apply", "stop", "approve"}
    assert {name for name in changing if tools[name].annotations.destructive_hint} == {"stop", "approve"}
    for tool in tools.values():
        assert tool.description
        assert set(tool.output_schema["properties"]) >= {"document", "truncated", "next", "exit_code"}
        assert all("type" in each or "anyOf" in each for each in tool.input_schema["properties"].values())


def test_runs_are_listed_a_page_at_a_time(ask: Ask, tmp_path: Path) -> None:
    nights(tmp_path / "store", [2, 3, 4])
    first = ask("nights", limit=2)
    assert (len(first["document"]["nights"]), first["next"]) == (2, {"first": 2})
    rest = ask("nights", limit=2, **first["next"])
    assert (len(rest["document"]["nights"]), rest["next"]) == (1, None)
    seen = [row["sweep_id"] for page in (first, rest) for row in page["document"]["nights"]]
    assert len(set(seen)) == 3


def test_a_sweep_is_looked_at(ask: Ask, tmp_path: Path) -> None:
    _, outcome = store(tmp_path / "store")
    status = ask("status", sweep=outcome.sweep_id)["document"]
    assert (status["sweep_id"], status["status"]) == (outcome.sweep_id, outcome.status)
    assert ask("best", sweep="night@latest")["document"]["score"] == outcome.best.score
    page = ask("trials", sweep=outcome.sweep_id, sort="auc", limit=3)
    assert page["document"]["trials"][0]["score"] == outcome.best.score
    assert page["next"] == {"first": 3}
    beside = ask("compare", base=outcome.sweep_id, new="night@latest#3")["document"]
    assert (beside["verdict"], beside["new"]["configs"]) == ("undecided", 1)
    report = ask("report", sweep=outcome.sweep_id)["document"]
    assert report["status"]["status"] == outcome.status
    assert report["best_trials"]["trials"][0]["score"] == outcome.best.score


@pytest.mark.parametrize("name", ["nothing@latest", "--help", "-x", "a\x1b[2Jb"])
def test_what_is_not_there_is_the_error_of_the_command_line(ask: Ask, name: str) -> None:
    error = ask("status", sweep=name)["document"]["error"]
    assert (error["code"], error["exit_code"]) == ("sweep_not_found", 2)
    assert "\x1b" not in json.dumps(error)


@pytest.mark.parametrize("name", ["", "x" * 300, ".."])
def test_a_name_that_nothing_can_have_is_not_found(ask: Ask, name: str) -> None:
    assert ask("status", sweep=name)["document"]["error"]["code"] == "sweep_not_found"
    assert ask("evidence", name=name)["document"]["error"]["code"] == "spec"


@pytest.mark.parametrize("name", ["/etc/night-0123456789", "s3://other/night@latest", "../x", "a/b"])
def test_only_the_storage_of_the_server_is_read(ask: Ask, tmp_path: Path, name: str) -> None:
    for tool in ("status", "best", "trials", "report", "stop"):
        assert ask(tool, sweep=name)["document"]["error"]["code"] == "spec"
    assert ask("evidence", name=name)["document"]["error"]["code"] == "spec"


@pytest.mark.parametrize("name", ["a\0b", "\0", "\udcff", "n" * 200_000])
def test_what_no_command_line_can_hold_is_refused(ask: Ask, name: str) -> None:
    found = ask("status", sweep=name)["document"]
    assert (found["error"]["code"], found["schema_version"]) == ("usage", consoles.SCHEMA_VERSION)
    token = f"plan1.night-0123456789{'.0123456789' * 4}"
    found = ask("apply", spec=name, token=token)["document"]
    assert found["error"]["code"] == "usage"


@pytest.mark.parametrize(
    "token", ["", "plan1", "plan1./etc/passwd.1.2.3.4", f"plan1.a/../b{'.0123456789' * 4}", "p" * 300_000]
)
def test_a_token_edited_by_hand_starts_nothing(ask: Ask, tmp_path: Path, token: str) -> None:
    error = ask("apply", spec="spec.yaml", token=token)["document"]["error"]
    assert (error["code"], error["field"], error["next"]) == ("spec", "token", "plan")
    assert len(error["message"]) < 300
    assert not list(tmp_path.iterdir())


def test_approval_is_refused_unless_it_is_allowed(ask: Ask, tmp_path: Path) -> None:
    line = tmp_path / "line"
    night(line, "2026-11-26", 0.9)
    night(line, "2026-11-27", 0.95, approval=ApprovalSpec(timeout=3600))
    given = {"name": "flights@latest", "decision": "approve", "note": "looked"}
    refused = ask("approve", storage=line, **given)["document"]["error"]
    assert refused["code"] == "not_allowed"
    done = ask("approve", storage=line, allows=True, **given)["document"]
    assert (done["changed"], done["approved"], done["note"]) == (True, True, "looked")
    assert ask("evidence", storage=line, name="flights")["document"]["entries"]


def test_resources_are_specs_and_outcomes(tmp_path: Path) -> None:
    _, outcome = store(tmp_path / "store")
    server = make_server(str(tmp_path / "store"))

    def read(part: str, sweep: str = outcome.sweep_id) -> Any:
        found = in_client(server, lambda c: c.read_resource(f"raysweep://sweeps/{sweep}/{part}"))
        return json.loads(found.contents[0].text)

    assert read("spec")["document"]["param_space"]["rate"] == {"loguniform": [1e-4, 1e-1]}
    assert read("outcome")["document"]["status"] == outcome.status
    for other in ("nothing", "..%2Felsewhere"):
        with pytest.raises(ExceptionGroup) as refused:
            read("spec", other)
        assert refused.group_contains(MCPError), refused.value
    templates = in_client(server, lambda c: c.list_resource_templates()).resource_templates
    assert {each.uri_template for each in templates} == {
        "raysweep://sweeps/{sweep}/spec",
        "raysweep://sweeps/{sweep}/outcome",
    }


def test_a_plan_is_applied_once(ask: Ask, tmp_path: Path) -> None:
    spec = tmp_path / "agent.json"
    (tmp_path / "agent_trainable.py").write_text(CODE)
    spec.write_text(json.dumps(SPEC | {"storage_path": str(tmp_path / "elsewhere")}))
    given = {"spec": str(spec), "key": "k"}
    plan = ask("plan", **given)["document"]
    assert plan["trials"] == 2
    assert not (tmp_path / "store").exists()
    refused = ask("apply", **given, token=plan["token"], settings=["num_samples=3"])["document"]["error"]
    assert refused["code"] == "plan_changed"
    assert "another spec" in refused["message"]
    assert ask("apply", **given, token="plan1")["document"]["error"]["field"] == "token"
    for _ in range(2):
        done = ask("apply", **given, token=plan["token"])["document"]
        while done.get("status") != "completed":
            assert "started" in done or done["status"] in ("starting", "running"), done
            time.sleep(0.5)
            done = ask("status", sweep=plan["sweep_id"])["document"]
        assert (done["sweep_id"], done["status"]) == (plan["sweep_id"], "completed")
    assert len(ask("nights")["document"]["nights"]) == 1
    assert not (tmp_path / "elsewhere").exists(), "the server's storage path counts"
    cancelled = ask("stop", sweep=plan["sweep_id"], reason="enough")["document"]
    assert (cancelled["was_running"], cancelled["status"]) == (False, "completed")
