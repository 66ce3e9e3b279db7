"""Every error: one line, picklable, in the tree of the module's docstring."""

from __future__ import annotations

import pickle

import pytest

from raysweep import errors
from raysweep.errors import RaysweepError
from tests.unit.error_examples import EXAMPLES


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


def test_each_class_is_named_as_users_import_it() -> None:
    assert {type(error).__module__ for error in EXAMPLES} == {"raysweep.errors"}


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
