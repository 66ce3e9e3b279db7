"""Functions written for Ray Tune or Ray Train run as they are: `run_trial` is a trial without a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import TrialStopped
from raysweep.testing import run_trial
from raysweep.worker.ray_calls.tune_calls import flatten


def counts_with_tune(config: dict[str, Any]) -> None:
    from ray import tune

    step = 0
    found = tune.get_checkpoint()
    if found:
        with found.as_directory() as folder:
            step = json.loads((Path(folder) / "state.json").read_text())["step"] + 1
    for now in range(step, config["steps"]):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "state.json").write_text(json.dumps({"step": now}))
            tune.report({"step": now}, checkpoint=tune.Checkpoint.from_directory(folder))
        if now == config.get("fails_at") and found is None:
            raise RuntimeError("once")


def test_a_function_that_reports_to_tune_resumes_from_the_checkpoint_that_it_reported() -> None:
    first, second = run_trial(counts_with_tune, {"steps": 4, "fails_at": 1}, max_failures=1)
    assert first.end == "failed"
    assert [row["step"] for row in first.reports] == [0, 1]
    assert second.resumed_from == 2
    assert [row["step"] for row in second.reports] == [2, 3]
    assert second.end == "returned"


def counts_with_train(config: dict[str, Any]) -> None:
    from ray import train

    step = 0
    found = train.get_checkpoint()
    if found:
        with found.as_directory() as folder:
            step = int((Path(folder) / "step").read_text()) + 1
    for now in range(step, config["steps"]):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "step").write_text(str(now))
            ranks = train.get_context().get_world_rank(), train.get_context().get_world_size()
            train.report(
                {"step": now, "ranks": list(ranks)}, checkpoint=train.Checkpoint.from_directory(folder)
            )
        if now == 1 and found is None:
            raise RuntimeError("once")


def test_a_function_that_reports_to_train_resumes_from_the_checkpoint_that_it_reported() -> None:
    first, second = run_trial(counts_with_train, {"steps": 3}, max_failures=1)
    assert [row["step"] for row in first.reports] == [0, 1]
    assert [row["step"] for row in second.reports] == [2]
    assert second.reports[0]["ranks"] == [0, 1]


def hands_its_folder_over(config: dict[str, Any]) -> None:
    from ray import train

    folder = tempfile.mkdtemp()
    (Path(folder) / "f").write_text("x")
    train.report(
        {"loss": 1.0},
        checkpoint=train.Checkpoint.from_directory(folder),
        delete_local_checkpoint_after_upload=True,
    )
    train.report({"loss": float(Path(folder).exists())})


def test_a_folder_that_ray_train_is_to_delete_is_deleted() -> None:
    (attempt,) = run_trial(hands_its_folder_over, {})
    assert attempt.error is None
    assert attempt.reports[-1]["loss"] == 0.0
    assert attempt.checkpoints == (0,)


def asks_where_it_is(config: dict[str, Any]) -> None:
    from ray import tune

    context = tune.get_context()
    folder = Path(context.get_trial_dir())
    (folder / "artifact").write_text("x")
    assert context.get_trial_dir() == str(folder)
    tune.report(
        {
            "id": context.get_trial_id(),
            "name": context.get_trial_name(),
            "experiment": context.get_experiment_name(),
            "resources": context.get_trial_resources(),
            "folder": str(folder),
        }
    )


def test_the_context_tells_of_the_trial_and_its_folder_goes_with_the_attempt() -> None:
    (attempt,) = run_trial(asks_where_it_is, {}, number=3)
    assert attempt.error is None
    (row,) = attempt.reports
    assert (row["id"], row["name"], row["experiment"]) == ("00003", "trial_00003", "trial")
    assert row["resources"] is None
    assert not Path(row["folder"]).exists()


def reports_nested(config: dict[str, Any]) -> None:
    from ray import tune

    tune.report({"loss": 1.0, "eval": {"acc": {"top1": 0.5}, "n": 2}, "list": [1, {"a": 2}]})


def test_metrics_of_metrics_have_tunes_names() -> None:
    from ray.tune.utils import flatten_dict

    nested = {"loss": 1.0, "eval": {"acc": {"top1": 0.5}, "n": 2}, "list": [1, {"a": 2}]}
    (attempt,) = run_trial(reports_nested, {})
    assert attempt.reports == (flatten_dict(nested),)
    assert flatten(nested) == flatten_dict(nested)


def test_a_returned_metric_inside_another_is_found_by_tunes_name() -> None:
    (inner,) = run_trial(lambda config: {"eval": {"loss": 2.0}}, {}, metric="eval/loss")
    assert inner.reports == ({"eval/loss": 2.0},)
    (outer,) = run_trial(lambda config: {"eval": {"loss": 2.0}, "loss": 1.0}, {}, metric="loss")
    assert outer.reports == ({"eval": {"loss": 2.0}, "loss": 1.0},)


def says_that_it_is_done(config: dict[str, Any]) -> None:
    from ray import tune

    for step in range(100):
        tune.report({"step": step, "done": step == 2})


def test_a_report_that_says_done_ends_the_trial_as_completed() -> None:
    (attempt,) = run_trial(says_that_it_is_done, {})
    assert attempt.end == "returned"
    assert [row["step"] for row in attempt.reports] == [0, 1, 2]


def test_a_stop_ends_a_function_that_reports_to_tune() -> None:
    (attempt,) = run_trial(counts_with_tune, {"steps": 100}, stop_at=2)
    assert attempt.end == "stopped"
    assert [row["step"] for row in attempt.reports] == [0, 1]


def test_a_stop_passes_through_except_exception() -> None:
    def train(config: dict[str, Any]) -> None:
        from ray import tune

        for step in range(5):
            try:
                tune.report({"step": step})
            except Exception:  # noqa: BLE001  as user code does
                raise AssertionError("a stop is no Exception") from None
            except TrialStopped:
                raise

    (attempt,) = run_trial(train, {}, stop_at=1)
    assert attempt.end == "stopped"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("report({}, validation=True, checkpoint=object())", "validation"),
        ("report({}, checkpoint_upload_fn=print)", "checkpoint_upload_fn"),
        ("get_dataset_shard('train')", "get_dataset_shard"),
        ("get_all_reported_checkpoints()", "get_all_reported_checkpoints"),
    ],
)
def test_what_has_no_meaning_in_a_trial_is_refused_by_name(call: str, said: str) -> None:
    def train(config: dict[str, Any]) -> None:
        import ray.train

        eval(f"ray.train.{call}", {"ray": ray})

    (attempt,) = run_trial(train, {})
    assert attempt.error is not None
    assert attempt.error["type"] == "NotImplementedError"
    assert said in attempt.error["message"]


def test_after_the_trial_the_calls_are_rays_own_again() -> None:
    run_trial(says_that_it_is_done, {})
    from ray import train, tune

    with pytest.warns(UserWarning, match="only be called inside"):
        tune.report({"loss": 1.0})
    with pytest.raises(RuntimeError, match="outside of a Ray Train"):
        train.report({"loss": 1.0})


LATE = """
import sys
from raysweep.testing import run_trial

def train(config):
    assert not any(name.startswith("ray.") for name in sys.modules), "before"
    from ray.tune import report
    report({"step": 1})

(attempt,) = run_trial(train, {})
print(attempt.end, attempt.reports, attempt.error)

def without(config):
    import raysweep
    raysweep.report({"step": 2})

(attempt,) = run_trial(without, {})
print(attempt.end, attempt.reports)
"""


def test_a_trial_that_imports_tune_only_while_it_runs_reports_all_the_same() -> None:
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "returned ({'step': 1},) None",
        "returned ({'step': 2},)",
    ]


def test_a_trial_without_tune_imports_nothing_of_ray() -> None:
    code = textwrap.dedent(
        """
        import sys
        import raysweep
        from raysweep.testing import run_trial
        run_trial(lambda config: raysweep.report({"loss": 1.0}), {})
        print(sorted(name for name in sys.modules if name == "ray" or name.startswith("ray.")))
        """
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
