"""Every error: one line, picklable, in the tree of the module's docstring."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from raysweep import errors
from raysweep.cli.exit_codes import say_error
from raysweep.errors import RaysweepError, docs_of
from raysweep.errors.base import DOCS
from raysweep.hooks.base import SinkDownError
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


# -- documentation ------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[2] / DOCS).read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_each_class_has_the_section_that_its_message_links_to(error: BaseException) -> None:
    name = type(error).__name__
    section = SECTIONS[name]
    # As MkDocs and GitHub make an anchor of a heading.
    assert docs_of(error) == docs_of(type(error)) == f"docs/errors.md#{name.lower()}"
    if isinstance(error, RaysweepError):
        retryable = ", retryable" if error.retryable else ""
        assert f"Exit code {error.exit_code}{retryable}." in section
    first = " ".join((type(error).__doc__ or "").split("\n\n")[0].split())
    assert first in " ".join(section.split()), "it says what the class says"


def test_the_page_has_no_section_of_a_class_that_is_gone() -> None:
    assert set(SECTIONS) == {type(error).__name__ for error in EXAMPLES}


def test_a_class_of_elsewhere_links_to_the_one_above_it_and_others_to_nothing() -> None:
    assert docs_of(SinkDownError("down")) == "docs/errors.md#raysweeperror"
    assert docs_of(KeyError("x")) == ""


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_link_is_a_second_line_on_a_terminal_only(
    is_terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rich.console.Console.is_terminal", property(lambda _: is_terminal))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    assert say_error("x: y", 2, docs="docs/errors.md#specerror") == 2
    lines = [re.sub(r"\x1b\[\d*m", "", line) for line in capsys.readouterr().err.splitlines()]
    assert lines == ["error: x: y", *(["see docs/errors.md#specerror"] if is_terminal else [])]
