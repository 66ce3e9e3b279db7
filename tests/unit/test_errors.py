"""Every error: one line, picklable, in the tree of the module's docstring."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import pytest

from raysweep import errors
from raysweep.errors import RaysweepError

LONG = "two\nlines " + "x" * 2000
EXAMPLES: list[BaseException] = [
    errors.RaysweepError("something", LONG),
    errors.SpecError("field", LONG, "fix"),
    errors.TrainableImportError("trainable", "problem", "fix"),
    errors.InfeasibleResourcesError("resources", "problem", "fix"),
    errors.StorageNotSharedError("storage_path", "problem", "fix"),
    errors.StorageNotWritableError("storage_path", "problem", "fix"),
    errors.MetricNeverReportedError("metric", "problem", "fix"),
    errors.SampleFromError("param_space.a", LONG, "fix", {"b": 1}),
    errors.SpecChangedError("flights-0123456789", tuple(f"a: {n} -> {LONG}" for n in range(9))),
    errors.SweepNotFoundError("flights-0123456789", "/data", "look elsewhere"),
    errors.LogNotFoundError("flights-0123456789", 17, 2, "there are logs of its attempts 1"),
    errors.SweepHeldError("flights-0123456789", "process 3 on host"),
    errors.ChampionKeptError("flights-0123456789", "flights"),
    errors.GateOutdatedError("flights-0123456789", "flights-gate-0123456789"),
    errors.FencedError("flights-0123456789", 1, 2),
    errors.StorageError("path", LONG, "fix"),
    errors.StorageUnavailableError("path", "problem"),
    errors.JournalDamagedError("path", "problem", "3 results", "fix"),
    errors.CheckpointDamagedError("path", "problem", "fix"),
    errors.SweepDamagedError("path", "problem", "fix"),
    errors.SegmentExistsError(3),
    errors.ClusterError("", LONG),
    errors.ClusterUnreachableError("ray://x", "problem", "fix"),
    errors.ClusterLostError("ray://x", "problem"),
    errors.ConnectionUnreadableError("raysweep_default", "problem", "fix"),
    errors.ClusterCertificateError("https://x", "problem", "fix"),
    errors.ClusterAuthError("http://x", "problem", "fix"),
    errors.TokenMissingError("http://x", "problem", "fix"),
    errors.TokenRefusedError("http://x", "problem", "fix"),
    errors.ClusterServerError("http://x", LONG, "fix"),
    errors.ClusterRequestError("http://x", "problem", "fix"),
    errors.JobNotFoundError("http://x", "flights-0123456789.1"),
    errors.JobExistsError("http://x", "flights-0123456789.1"),
    errors.JobStoppedError("flights-0123456789.1"),
    errors.JobFailedError("flights-0123456789.1", LONG, "fix"),
    errors.WaitFailedError("flights-0123456789.1", LONG),
    errors.SweepFailedError(SimpleNamespace(sweep_id="s", status="failed", why=LONG, uri="/x")),
    errors.TrainingFailedError(SimpleNamespace(run_id="r", error=SimpleNamespace(message=LONG))),
    errors.SweepInterrupted("flights-0123456789"),
    errors.TrialStopped("asha"),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_one_line_and_picklable(error: BaseException) -> None:
    text = str(error)
    assert text
    assert "\n" not in text
    assert len(text) <= 600
    back = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(back) is type(error)
    assert str(back) == text
    assert vars(back).keys() == vars(error).keys()


def test_every_class_is_tried_here_and_stands_in_the_docstring() -> None:
    classes = {
        value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, BaseException) and not name.startswith("_")
    }
    assert classes == {type(error) for error in EXAMPLES}
    for cls in classes:
        assert cls.__name__ in (errors.__doc__ or "")


def test_the_docstring_says_what_the_classes_say() -> None:
    for line in (errors.__doc__ or "").splitlines():
        words = line.replace("(KeyboardInterrupt)", "").replace("(ValueError)", "").split()
        name = next((word for word in words if word.endswith(("Error", "Interrupted"))), None)
        if name and ("yes" in words or "no" in words):
            cls = getattr(errors, name)
            at = words.index("yes" if "yes" in words else "no")
            assert cls.retryable == (words[at] == "yes"), name
            assert cls.exit_code == int(words[at + 1]), name


def test_user_code_cannot_swallow_the_end_of_its_trial() -> None:
    assert not issubclass(errors.TrialStopped, Exception)


def test_an_interrupt_is_a_keyboard_interrupt_and_ours() -> None:
    assert issubclass(errors.SweepInterrupted, KeyboardInterrupt)
    assert issubclass(errors.SweepInterrupted, RaysweepError)


def test_texts() -> None:
    assert str(errors.SpecError("field", "problem", "fix")) == "field: problem; fix"
    assert str(errors.SpecError("field", "problem")) == "field: problem"
    assert str(errors.JournalDamagedError("p", "gap", "2 results", "restore it")) == (
        "p: gap; lost: 2 results; restore it"
    )
    changed = errors.SpecChangedError("s-1", ("seed: 1 -> 2",))
    assert changed.diff == ("seed: 1 -> 2",)
    assert str(changed) == (
        "spec: sweep 's-1' was started with another spec: seed: 1 -> 2; "
        "use another key to start a new sweep, or change the spec back"
    )
