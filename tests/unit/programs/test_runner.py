"""Programs as trials, in this process: reports, checkpoints, ends, and what is left of them."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from raysweep.messages import Stop
from raysweep.programs.plan import plan_of
from raysweep.programs.runner import Program
from raysweep.specs import SweepSpec
from raysweep.testing import run_trial, trials

EMIT = f"{sys.executable} -m raysweep.cli emit"


def program(command: Sequence[str], space: dict[str, Any] | None = None, **options: Any) -> Program:
    spec = SweepSpec(
        name="program",
        command=command,
        program=options or None,
        param_space=space or {"lr": {"uniform": [0, 1]}},
        metric="loss",
        mode="min",
    )
    return Program(plan_of(spec))


def bash(script: str, *rest: str, **options: Any) -> Program:
    return program(["bash", "-c", script, "script", *rest], **options)


def python(path: Path, text: str, *rest: str, **options: Any) -> Program:
    path.write_text(text)
    return program(["{python}", str(path), *rest], **options)


def test_a_shell_script_reports_by_emit_and_gets_its_config() -> None:
    script = f'for step in 1 2 3; do {EMIT} loss=0.$step step=$step "args=$*"; done'
    (attempt,) = run_trial(bash(script), {"lr": 0.5})
    assert attempt.end == "returned"
    assert [(row["step"], row["loss"]) for row in attempt.reports] == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert attempt.reports[0]["args"] == "--lr 0.5"


def test_a_program_gets_the_trials_seed() -> None:
    script = f"{EMIT} loss=$1 variable=$RAYSWEEP_SEED"
    (attempt,) = run_trial(bash(script, "{seed}"), {"lr": 0.5}, seed=2**31 - 5)
    assert [(row["loss"], row["variable"]) for row in attempt.reports] == [(2**31 - 5, 2**31 - 5)]


def test_a_program_resumes_from_the_checkpoint_that_it_emitted(tmp_path: Path) -> None:
    script = f"""
        first=1
        if [ -n "$RAYSWEEP_CHECKPOINT" ]; then first=$(( $(cat $RAYSWEEP_CHECKPOINT/step) + 1 )); fi
        for step in $(seq $first 4); do
            mkdir -p saved; echo $step > saved/step
            {EMIT} loss=0.$step step=$step --checkpoint saved
            if [ $step = 2 ] && [ $RAYSWEEP_ATTEMPT = 1 ]; then kill -9 $$; fi
        done
    """
    os.chdir(tmp_path)
    first, second = run_trial(bash(script), {"lr": 0.5}, max_failures=1)
    assert first.end == "failed"
    assert first.error is not None
    assert first.error["origin"] == "process"
    assert "SIGKILL" in first.error["message"]
    assert second.resumed_from == 2
    assert [row["step"] for row in (*first.reports, *second.reports)] == [1, 2, 3, 4]


def test_a_program_that_reports_nothing_fails_and_says_where_it_was_listened_to() -> None:
    (attempt,) = run_trial(bash("true"), {"lr": 0.5})
    assert attempt.error is not None
    assert attempt.error["type"] == "MetricNeverReported"
    assert "without reporting anything" in attempt.error["message"]
    (attempt,) = run_trial(bash("true", metrics={"jsonl": "metrics.jsonl"}), {"lr": 0.5})
    assert attempt.error is not None
    assert "output/metrics.jsonl never appeared" in attempt.error["message"]


def test_the_last_line_of_stderr_is_in_the_message_of_a_failure() -> None:
    (attempt,) = run_trial(bash("echo ValueError: bad >&2; exit 3"), {"lr": 0.5})
    assert attempt.error is not None
    assert attempt.error["message"] == "bash ended with exit code 3: ValueError: bad"
    assert attempt.error["origin"] == "exception"
    assert attempt.error["exit_code"] == 3
    assert "ValueError: bad" in attempt.error["traceback"]


def test_a_program_whose_config_cannot_work_says_so_and_is_ended(tmp_path: Path) -> None:
    script = f'{EMIT} loss=1; {EMIT} --infeasible "needs 90 GB"; echo $? > {tmp_path}/code; sleep 300'
    began = time.monotonic()
    (attempt,) = run_trial(bash(script), {"lr": 0.5})
    assert attempt.error is not None
    assert (attempt.error["origin"], attempt.error["message"]) == ("infeasible", "needs 90 GB")
    assert [row["loss"] for row in attempt.reports] == [1]
    assert time.monotonic() - began < 60


def test_a_program_that_is_not_there_is_named() -> None:
    (attempt,) = run_trial(program(["no-such-program"]), {"lr": 0.5})
    assert attempt.error is not None
    assert "there is no program 'no-such-program' on PATH" in attempt.error["message"]


@pytest.mark.parametrize("ignores", [False, True], ids=["ends", "ignores"])
def test_a_stopped_program_gets_a_signal_and_then_is_killed(tmp_path: Path, ignores: bool) -> None:
    trap = "trap '' TERM" if ignores else f"trap 'echo heard > {tmp_path}/heard; exit 0' TERM"
    script = f"""
        {trap}
        sleep 300 & echo $! > {tmp_path}/child
        setsid sleep 300 & echo $! > {tmp_path}/apart
        {EMIT} loss=1; {EMIT} loss=2
        while true; do sleep 0.05; done
    """
    began = time.monotonic()
    (attempt,) = run_trial(bash(script, stop={"grace_s": 1.0}), {"lr": 0.5}, stop_at=2)
    assert attempt.end == "stopped"
    assert [row["loss"] for row in attempt.reports] == [1, 2]
    assert (tmp_path / "heard").exists() is not ignores
    assert (time.monotonic() - began >= 1.0) is ignores or not ignores
    for name in ("child", "apart"):
        assert not is_alive(int((tmp_path / name).read_text()))


class Asks(trials._Recorder):
    """Asks for a checkpoint at the 2nd report, as for a pause or a node that is drained."""

    def keep_row(self, trial: int, row: dict[str, Any]) -> None:
        super().keep_row(trial, row)
        if len(self._rows) == 2:
            self._take([Stop(*self._job.who, reason="drain", wants_checkpoint=True, allows="checkpoint")])


@pytest.mark.parametrize("signal", [None, "SIGUSR1"])
def test_a_program_that_is_to_pause_makes_a_checkpoint_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signal: str | None
) -> None:
    """It ignores SIGTERM. By a signal of its own it is told, else its next checkpoint is waited for."""
    monkeypatch.setattr(trials, "_Recorder", Asks)
    monkeypatch.chdir(tmp_path)
    when = "[ -e now ]" if signal else "[ $step = 4 ]"
    script = f"""
        trap '' TERM; trap 'touch now' USR1
        mkdir saved; step=0
        while true; do
            step=$((step+1))
            if {when}; then {EMIT} loss=9 --checkpoint saved; else {EMIT} loss=$step; fi
            sleep 0.1
        done
    """
    options = {"grace_s": 0.2, "checkpoint_signal": signal}
    (attempt,) = run_trial(bash(script, stop=options), {"lr": 0.5})
    assert attempt.end == "stopped"
    assert attempt.reports[-1]["loss"] == 9
    assert attempt.checkpoints == (1,) or len(attempt.checkpoints) == 1
    assert signal or len(attempt.reports) == 4


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


SAVES = """
import json, os, pathlib, sys
out = pathlib.Path(os.environ["RAYSWEEP_OUTPUT_DIR"])
resumed = sys.argv[sys.argv.index("--resume") + 1] if "--resume" in sys.argv else None
first = int(pathlib.Path(resumed, "step").read_text()) + 1 if resumed else 1
assert resumed is None or sorted(os.listdir(resumed)) == ["done", "step"], os.listdir(resumed)
for step in range(first, 7):
    with open(out / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": step, "loss": 1 / step}) + "\\n")
    if step % 2 == 0:
        folder = out / f"checkpoint-{step}"
        folder.mkdir()
        (folder / "step").write_text(str(step))
        (folder / "done").write_text("")
    if step == 5 and resumed is None:
        import time
        time.sleep(1.0)
        os.kill(os.getpid(), 9)
"""


def test_watched_checkpoints_go_with_their_step_and_no_report_is_made_twice(tmp_path: Path) -> None:
    made = python(
        tmp_path / "train.py",
        SAVES,
        "{args}",
        "{resume}",
        metrics={"jsonl": "metrics.jsonl"},
        checkpoints={"folder": "checkpoint-*", "marker": "done", "resume": "--resume {checkpoint}"},
    )
    first, second = run_trial(made, {"lr": 0.5}, max_failures=1)
    assert second.resumed_from in (4, 5)
    steps = [row["step"] for row in (*first.reports[: second.resumed_from], *second.reports)]
    assert steps == [1, 2, 3, 4, 5, 6]
    assert second.end == "returned"
    assert second.checkpoints


def test_lines_of_stdout_are_reports_and_reach_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    made = bash(
        "for n in 1 2 3; do echo epoch=$n loss=0.$n; done",
        metrics={"stdout": r"epoch=(?P<epoch>\d+) loss=(?P<loss>\S+)"},
    )
    (attempt,) = run_trial(made, {"lr": 0.5})
    assert attempt.reports == tuple({"epoch": n, "loss": n / 10} for n in (1, 2, 3))
    assert "epoch=3 loss=0.3" in capfd.readouterr().out


@pytest.mark.parametrize("end", ["exit 0", "exit 3", "kill -9 $$", "kill -TERM $$"])
@pytest.mark.parametrize("source", ["stdout", "jsonl"])
def test_a_last_line_without_its_end_counts_only_after_exit_code_0(source: str, end: str) -> None:
    """`loss=1` may be the beginning of `loss=14.9`."""
    if source == "stdout":
        made = bash(f"printf 'loss=8.5\\nloss=1'; {end}", metrics={"stdout": r"loss=(?P<loss>\S+)"})
    else:
        lines = r"""printf '{"loss": 8.5}\n{"loss": 1}' > $RAYSWEEP_OUTPUT_DIR/m"""
        made = bash(f"{lines}; {end}", metrics={"jsonl": "m"})
    (attempt,) = run_trial(made, {"lr": 0.5})
    assert [row["loss"] for row in attempt.reports] == ([8.5, 1] if end == "exit 0" else [8.5])


def test_a_killed_program_that_is_resumed_reports_no_cut_line(tmp_path: Path) -> None:
    script = f"""
        if [ -e {tmp_path}/again ]; then printf 'step=1 loss=9.5\\nstep=2 loss=14.9'; exit; fi
        touch {tmp_path}/again; printf 'step=1 loss=9.5\\nstep=2 loss=1'; kill -9 $$
    """
    made = bash(script, metrics={"stdout": r"step=(?P<step>\d+) loss=(?P<loss>\S+)"})
    attempts = run_trial(made, {"lr": 0.5}, max_failures=1)
    assert [[row["loss"] for row in attempt.reports] for attempt in attempts] == [[9.5], [9.5, 14.9]]


def test_a_program_that_is_stopped_reports_no_cut_line() -> None:
    script = "trap 'exit 0' TERM; echo loss=3; echo loss=2; printf loss=1; while true; do sleep 0.05; done"
    (attempt,) = run_trial(bash(script, metrics={"stdout": r"loss=(?P<loss>\S+)"}), {"lr": 0.5}, stop_at=2)
    assert (attempt.end, [row["loss"] for row in attempt.reports]) == ("stopped", [3, 2])


def test_config_reaches_a_program_as_file_and_variables(tmp_path: Path) -> None:
    script = f'{EMIT} loss=1 "file=$(cat $1)" "lr=$LR" "own=$OWN"'
    made = bash(script, "{config_file}", arguments="environment", environment={"OWN": "trial-{number}"})
    (attempt,) = run_trial(made, {"lr": 0.5}, number=7)
    (row,) = attempt.reports
    assert row["file"] == {"lr": 0.5} or json.loads(row["file"]) == {"lr": 0.5}
    assert (row["lr"], row["own"]) == (0.5, "trial-7")


def test_a_parameter_named_path_does_not_take_the_programs_path() -> None:
    """A placeholder names it; and one that a choice brings is refused where the trial begins."""
    made = program(
        ["bash", "-c", f'test "$DATA" = /a.csv && {EMIT} loss=1'],
        {"path": {"choice": ["/a.csv"]}},
        arguments="environment",
        environment={"DATA": "{path}"},
    )
    (attempt,) = run_trial(made, {"path": "/a.csv"})
    assert attempt.end == "returned", attempt.error
    made = program(
        ["bash", "-c", f"{EMIT} loss=1"], {"ld": {"choice": [{"preload": "x"}]}}, arguments="environment"
    )
    (attempt,) = run_trial(made, {"ld": {"preload": "x"}})
    assert attempt.error is not None
    assert "the parameter ld.preload would replace the variable LD_PRELOAD" in attempt.error["message"]


def test_nothing_of_a_program_is_left_in_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run_trial(bash(f"{EMIT} loss=1"), {"lr": 0.5})
    assert not list(tmp_path.glob("raysweep-program-*"))


LATE = """
import json, os, pathlib, sys, time
out = pathlib.Path(os.environ["RAYSWEEP_OUTPUT_DIR"])
resumed = sys.argv[sys.argv.index("--resume") + 1] if "--resume" in sys.argv else None
first = int(pathlib.Path(resumed, "step").read_text()) + 1 if resumed else 1
for step in range(first, 9):
    with open(out / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": step, "loss": step}) + "\\n")
    if step in (4, 6):
        folder = out / f"checkpoint-{step}"
        folder.mkdir()
        (folder / "step").write_text(str(step))
        if resumed:
            (folder / "done").touch()
    time.sleep(0.15)
    if step == 7 and not resumed:
        (out / "checkpoint-4" / "done").touch()
        time.sleep(2)
        os.kill(os.getpid(), 9)
"""


def test_reports_behind_a_checkpoint_that_was_complete_late_are_not_made_twice(tmp_path: Path) -> None:
    made = python(
        tmp_path / "train.py",
        LATE,
        metrics={"jsonl": "metrics.jsonl"},
        checkpoints={"folder": "checkpoint-*", "marker": "done", "resume": "--resume {checkpoint}"},
    )
    first, second = run_trial(made, {"lr": 0.5}, max_failures=1)
    assert [row["step"] for row in first.reports] == [1, 2, 3, 4, 5, 6, 7]
    assert second.resumed_from == 7
    assert [row["step"] for row in second.reports] == [8]
