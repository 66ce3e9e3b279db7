"""What is shown in Prefect: the form of the flows' parameters, and artifacts made of reports."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import orjson
import pytest
import yaml
from markdown_it import MarkdownIt

import raysweep as rs
from raysweep.jobs import JobOptions
from raysweep.jobs.attach import RunningJob
from raysweep.outcome import BestTrial, Holder, SweepOutcome, SweepProgress, TrialOutcome
from raysweep.outcome.ended import status_of_outcome
from raysweep_prefect.artifacts import artifact_key, leaderboard, links_text, report_text
from raysweep_prefect.flows import Sweep, nightly_sweep, rollback_champion, sweep_many, train_best
from raysweep_prefect.following import Follower
from raysweep_prefect.identity import Asker
from raysweep_prefect.parameters import JobSettings

ROOT = Path(__file__).parents[2]
FLOWS = [nightly_sweep, sweep_many, train_best, rollback_champion]


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_the_form_tells_of_each_parameter_what_it_is(flow: Any) -> None:
    schema = flow.parameters.model_dump()
    assert schema["properties"]
    for name, field in schema["properties"].items():
        assert len(field["description"]) > 15, name
        assert {"type", "anyOf", "$ref"} & field.keys(), name
    assert set(schema["required"]) == {name for name, f in schema["properties"].items() if "default" not in f}


def test_the_form_has_the_fields_of_the_specs_with_their_help() -> None:
    schema = nightly_sweep.parameters.model_dump()
    assert {"$ref": "#/definitions/SweepSpec"} in schema["properties"]["spec"]["anyOf"]
    fields = schema["definitions"]["SweepSpec"]["properties"]
    assert fields["num_samples"]["default"] == 1
    number, none = fields["num_samples"]["anyOf"]
    assert (number["type"], number["minimum"], none["type"]) == ("integer", 1, "null")
    one, several, none = fields["mode"]["anyOf"]
    assert one["enum"] == several["items"]["enum"] == ["min", "max"]
    assert none["type"] == "null"
    # Where a part's help is what its own model says, the form takes it from there.
    helped = {name for name, field in fields.items() if field.get("description") or "$ref" in field}
    assert helped == set(fields)
    for name in ("GateSpec", "JobSettings", "StopPolicy", "TrainSpec"):
        for field, shown in schema["definitions"][name]["properties"].items():
            assert shown.get("description"), (name, field)
    assert schema["properties"]["job"]["default"] is None
    assert schema["definitions"]["JobSettings"]["properties"]["lease_ttl_s"]["default"] == 3600.0


def test_parameters_of_the_form_become_specs() -> None:
    spec = yaml.safe_load((ROOT / "examples/quick/sweep.yaml").read_text())
    given = nightly_sweep.validate_parameters(
        {"spec": spec, "train_spec": "train.yaml", "gate_spec": {"seeds": 2}, "job": {"working_dir": "."}}
    )
    assert isinstance(given["spec"], rs.SweepSpec)
    assert given["train_spec"] == "train.yaml"
    assert given["gate_spec"].seeds == 2
    assert given["job"].working_dir == "."
    # What the server stores is what comes back.
    stored = nightly_sweep.serialize_parameters(given)
    assert nightly_sweep.validate_parameters(stored)["spec"] == given["spec"]


def test_a_wrong_field_is_named() -> None:
    spec = yaml.safe_load((ROOT / "examples/quick/sweep.yaml").read_text()) | {"mode": "smallest"}
    with pytest.raises(Exception, match="mode") as raised:
        nightly_sweep.validate_parameters({"spec": spec})
    assert "ParameterTypeError" in type(raised.value).__name__


def test_environment_variables_are_passed_on_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAREHOUSE", "geheim")
    options = JobOptions.of(JobSettings(pass_env=["WAREHOUSE"]))
    assert options.secrets()["WAREHOUSE"].get_secret_value() == "geheim"
    assert "geheim" not in repr(options)
    monkeypatch.delenv("WAREHOUSE")
    with pytest.raises(rs.SpecError, match="WAREHOUSE: not set here"):
        options.secrets()


def test_the_brief_of_a_sweep_is_what_the_event_flow_takes() -> None:
    from raysweep.step import brief

    finished = Sweep.model_validate(brief(outcome()))
    assert finished.best["config"] == {"x": 0.5, "net": {"depth": 2}}
    assert finished.sweep_id == "flights-0123456789"


# --- artifacts


def trial(number: int, score: float | None, state: str = "completed") -> TrialOutcome:
    return TrialOutcome.model_validate(
        {
            "trial_id": f"{number:05d}",
            "number": number,
            "state": state,
            "config": {"x": 0.5, "net": {"depth": 2}},
            "score": score,
            "metrics": {"loss": score} if score is not None else {},
            "started_at": float(number),
            "ended_at": number + 1.0,
            "error": {"kind": "user_error", "type": "ValueError", "message": "a | b <i>"}
            if state == "failed"
            else None,
        }
    )


def outcome() -> rs.SweepOutcome:
    trials = (trial(0, 3.0), trial(1, 2.0), trial(2, None, "failed"), trial(3, 1.5))
    return rs.SweepOutcome(
        sweep_id="flights-0123456789",
        name="Flights: East",
        key="k",
        status="completed",
        why="every trial has ended",
        metric="loss",
        mode="min",
        best=trials[-1],
        trials=trials,
        counts={"completed": 3, "failed": 1},
        started_at=0.0,
        ended_at=10.0,
        uri="s3://bucket/sweeps/flights-0123456789",
    )


def progress(**fields: Any) -> SweepProgress:
    plain: dict[str, Any] = {
        "sweep_id": "s",
        "name": "s",
        "status": "running",
        "holder": Holder(host="h", pid=1),
        "generation": 1,
        "at": 50.0,
        "started_at": 0.0,
        "metric": "loss",
        "mode": "min",
        "best": BestTrial(trial_id="00000", score=1.0),
    }
    return SweepProgress.model_validate(plain | fields)


def test_keys_are_what_prefect_takes() -> None:
    for name in ("Flights: East", "a_b", "ümlaut 7"):
        assert re.fullmatch(r"[a-z0-9-]+", artifact_key(name, "leaderboard"))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"num_trials": 8, "counts": {"completed": 1, "failed": 1, "running": 2}}, 25.0),
        ({"num_trials": None, "deadline": 200.0}, 25.0),
        ({"num_trials": None}, 0.0),
        ({"num_trials": 8, "counts": {"completed": 3}, "status": "deadline"}, 100.0),
    ],
)
def test_progress_goes_by_trials_or_by_the_deadline(fields: dict[str, Any], expected: float) -> None:
    assert 100 * progress(**fields).share == expected


def test_the_leaderboard_has_the_best_first_and_its_config() -> None:
    rows = leaderboard(status_of_outcome(outcome(), now=20.0))
    assert [row["trial"] for row in rows] == ["00003", "00001", "00000"]
    assert rows[0] == {
        "#": 1,
        "trial": "00003",
        "loss": 1.5,
        "state": "completed",
        "reports": 0,
        "x": 0.5,
        "net": "depth=2",
    }


def test_what_breaks_a_constraint_is_marked_and_is_no_best() -> None:
    bound = "latency_ms <= 20"
    trials = tuple(t.model_copy(update={"violations": {bound: 5.0 - t.number}}) for t in outcome().trials)
    given = outcome().model_copy(update={"trials": trials, "best": None, "constraints": (bound,)})
    status = status_of_outcome(given, now=20.0)
    rows = leaderboard(status)
    assert [row["trial"] for row in rows] == ["00003", "00001", "00000"], "the nearest first"
    assert {row["violates"] for row in rows} == {bound}
    text = report_text(status)
    assert "## No best" in text
    assert "no trial satisfies latency\\_ms" in text
    assert "## Best loss" not in text


def test_of_several_metrics_the_front_is_marked_and_named() -> None:
    sizes = {3: 9.0, 1: 2.0, 0: 5.0}
    trials = tuple(
        each.model_copy(update={"metrics": {"loss": each.score, "size": sizes.get(each.number, 9.0)}})
        for each in outcome().trials
    )
    status = status_of_outcome(
        outcome().model_copy(update={"trials": trials, "others": {"size": "min"}}), now=20.0
    )
    rows = leaderboard(status)
    assert [(row["trial"], row["size"], row["front"]) for row in rows] == [
        ("00003", 9.0, "*"),
        ("00001", 2.0, "*"),
        ("00000", 5.0, ""),
    ]
    assert "## Pareto front" in report_text(status)
    assert "2 trials that no other beats in loss and size: 00003, 00001" in report_text(status)


def test_the_report_tells_what_matters_and_breaks_no_table() -> None:
    text = report_text(status_of_outcome(outcome(), now=20.0))
    assert text.startswith("# Flights: East: completed")
    assert "every trial has ended" in text
    assert "## Best loss: 1.5" in text
    assert "ValueError: a \\| b &lt;i&gt;" in text
    assert "raysweep status flights-0123456789 --storage s3://bucket/sweeps" in text
    assert "raysweep logs flights-0123456789 --storage s3://bucket/sweeps --trial " in text
    assert "`raysweep report flights-0123456789 --storage s3://bucket/sweeps --open`" in text
    assert re.search(r"`█+▃+▁+`|`[▁▂▃▄▅▆▇█]+`", text), "the best so far, as a line of bars"
    rows = [line for line in text.splitlines() if line.startswith("| 1 |")]
    assert len(rows) == 1


HOSTILE = {
    "a link": "[look](javascript:alert(1))",
    "an image": "![x](http://elsewhere.example/x.png)",
    "a tag": "<img src=x onerror=alert(1)>",
    "an autolink": "<http://elsewhere.example>",
    "a heading": "x\n# Flights: completed",
    "an end of code": "`x` [look](http://elsewhere.example)",
    "an end of a fence": "x\n```\n[look](http://elsewhere.example)\n```",
    "columns": "a | b | c",
    "an escape": "\\[look](http://elsewhere.example)",
    "a reference": "[look]\n\n[look]: http://elsewhere.example",
    "emphasis": "**bold** _soft_ ~~gone~~",
    "an entity": "&lt;script&gt;",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_whatever_a_sweep_is_called_the_report_shows_it_as_text(text: str) -> None:
    """Names, metrics, configs and errors come from specs and user code; Prefect's page renders Markdown."""
    plain = rendered(report_text(status_of_outcome(outcome(), now=20.0)))
    given = outcome().model_dump(mode="json")
    given |= {"name": text, "metric": f"m {text}", "key": text, "why": text}
    config = {"config": {text: text, "y": text}}
    given |= {"trials": [each | config for each in given["trials"]], "best": given["best"] | config}
    status = status_of_outcome(SweepOutcome.model_validate(given), now=20.0)
    found = rendered(report_text(status))
    assert found.kinds - plain.kinds <= {"code_inline"}
    assert found.headings == plain.headings
    assert found.cells == plain.cells
    shown = " ".join(text.split())
    assert found.texts[0] == f"{shown}: completed"
    links = rendered(links_text(None, f"s3://b/{text}"))
    assert (
        links.kinds <= {"bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close"} | PLAIN
    )


def test_two_sweeps_of_one_name_in_a_flow_have_artifacts_of_their_own() -> None:
    """And each keeps its own in a retry; another flow run begins anew."""
    flow, other = (
        Asker(owner_id=uuid4(), attempt=1, flow_run_id=uuid4(), task_run_id=None) for _ in range(2)
    )

    def keys(asker: Asker, name: str, run_id: str) -> set[str]:
        made: set[str] = set()
        client: Any = SimpleNamespace(
            create_artifact=lambda artifact: made.add(artifact.key) or SimpleNamespace(id=uuid4())
        )
        follower = Follower(
            asker, name=name, run_id=run_id, reader=None, uri="/s", logger=logging.getLogger("tests")
        )
        follower._show(client, is_last=False)
        return made

    runs = [("night", "night-1"), ("Night!", "night-2"), ("night-2", "night-2-1"), ("night", "night-1")]
    assert [keys(flow, *run) for run in runs] == [
        {"raysweep-night-links"},
        {"raysweep-night-links-2"},
        {"raysweep-night-2-links"},
        {"raysweep-night-links"},
    ]
    assert keys(other, "night", "night-3") == {"raysweep-night-links"}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_titles_and_cells_of_artifacts_are_text(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefect renders an artifact's description, and each text in a table, as Markdown."""
    monkeypatch.setattr("raysweep_prefect.following.emit", lambda *_, **__: None)
    given = outcome().model_dump(mode="json")
    config = {"config": {"y": text, "list": [1, 2], "option": "a_b*c"}}
    given |= {"name": text, "trials": [each | config for each in given["trials"]]}
    status = status_of_outcome(SweepOutcome.model_validate(given), now=20.0)
    made: list[Any] = []

    def keep(artifact: Any, key: str = "") -> Any:
        made.append(
            SimpleNamespace(key=key or artifact.key, **artifact.model_dump(include={"data", "description"}))
        )
        return SimpleNamespace(id=made[-1].key)

    client: Any = SimpleNamespace(create_artifact=keep, update_artifact=lambda key, new: keep(new, key))
    asker = Asker(owner_id=uuid4(), attempt=1, flow_run_id=uuid4(), task_run_id=None)
    follower = Follower(
        asker,
        name=text,
        run_id="s-1",
        reader=SimpleNamespace(read=lambda is_fresh: status),  # type: ignore[arg-type]
        uri="/s",
        logger=logging.getLogger("tests"),
    )
    follower._progress = progress(best=BestTrial(trial_id="00000", score=1.0, config={"y": text}))
    follower._show(client, is_last=True)
    assert {each.key.rpartition("-")[2] for each in made} == {"progress", "links", "leaderboard", "report"}
    shown = " ".join(text.split())
    for artifact in made:
        title = rendered(artifact.description)
        assert title.kinds <= PLAIN, artifact.description
        assert shown[:40] in title.texts[0] or artifact.key.endswith(("links", "report"))
    table = next(each.data for each in made if each.key.endswith("leaderboard"))
    row = orjson.loads(table)[0]
    assert rendered(row["y"]).kinds & {"link_open", "image", "html_inline", "html_block"} == set()
    assert (row["list"], row["option"]) == ("[1, 2]", "a_b*c"), "what is harmless stays as it is"


PLAIN = {"paragraph_open", "paragraph_close", "inline", "text", "code_inline", "softbreak"}


@dataclass
class Rendered:
    """What a Markdown text is made of, as CommonMark with tables reads it."""

    kinds: set[str]
    headings: int
    cells: int
    texts: list[str]


def rendered(text: str) -> Rendered:
    tokens = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text)
    inner = [child for token in tokens for child in token.children or ()]
    kinds = [token.type for token in (*tokens, *inner)]
    texts = ["".join(child.content for child in token.children or ()) for token in tokens if token.children]
    return Rendered(set(kinds), kinds.count("heading_open"), kinds.count("td_open"), texts)


def test_links_lead_to_the_job_and_hold_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    job = RunningJob(
        address="http://head:8265",
        kind="sweep",
        run_id="s-1",
        key="k",
        storage_path="s3://b",
        job_id="s-1.2",
        number=2,
        how="attached",
    )
    text = links_text(job, "s3://b/s-1")
    assert "[Ray job `s-1.2`](http://head:8265/#/jobs/s-1.2)" in text
    assert "`s3://b/s-1`" in text
    assert "`raysweep report s-1 --storage s3://b --open`" in text
    assert "report" not in links_text(job, "s3://b/s-1", is_sweep=False)
    monkeypatch.setenv("RAYSWEEP_DASHBOARD_URL", "https://sweeps.example")
    assert "- report: [`s-1`](https://sweeps.example/run/s-1)" in links_text(job, "s3://b/s-1")
