"""Callbacks of a spec: refused before a sweep starts, and stored without secrets."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from raysweep.errors import RaysweepError, SpecError
from raysweep.hooks import Callback
from raysweep.hooks.loading import load_callbacks, names_of
from raysweep.jobs.code.portable import check_portable
from raysweep.specs import SweepSpec
from raysweep.specs.changes import changes

HERE = "tests.unit.delivery.callbacks"


def spec_with(*callbacks: Any, **fields: Any) -> SweepSpec:
    return SweepSpec(name="n", trainable="m:f", param_space={"x": 1}, callbacks=callbacks, **fields)


class Unpicklable(Callback):
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def on_report(self, event: Any) -> None:
        pass


REFUSED = [
    ("no_such_module:Mine", "no module 'no_such_module'"),
    (f"{HERE}:Mine", "has no 'Mine'"),
    (f"{HERE}:NOT_A_CLASS", "not a class"),
    (f"{HERE}:HasNoHook", "has no method"),
    ({f"{HERE}:Writes": {"paht": "x"}}, r"unknown field 'paht'; did you mean 'path'"),
    ({f"{HERE}:Writes": {}}, r"callbacks"),
    ({"webhook": {"url_from": "NO_SUCH_VARIABLE"}}, "NO_SUCH_VARIABLE is not set here"),
    (Unpicklable(), "cannot be sent to the process that calls it"),
]


@pytest.mark.parametrize(("given", "problem"), REFUSED)
def test_a_callback_that_cannot_be_used_is_refused_before_the_start(given: Any, problem: str) -> None:
    with pytest.raises(RaysweepError, match=problem) as caught:
        load_callbacks(spec_with(given))
    assert "callbacks" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_storage_of_this_process_alone_is_refused() -> None:
    with pytest.raises(SpecError, match="memory://"):
        load_callbacks(spec_with("tensorboard", storage_path="memory://x"))


def test_a_callback_that_is_not_listed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYSWEEP_TRAINABLES", "other_module")
    with pytest.raises(RaysweepError, match="is not among what RAYSWEEP_TRAINABLES allows"):
        load_callbacks(spec_with(f"{HERE}:Writes"))


def test_the_address_of_a_webhook_is_stored_masked() -> None:
    spec = spec_with({"webhook": {"url": "https://hooks.slack.com/services/T0/B0/s3cret"}})
    stored = spec.to_stored()
    assert "s3cret" not in str(stored)
    assert "s3cret" not in repr(spec)
    assert stored["callbacks"][0]["webhook"]["url"] == "https://hooks.slack.com/***"
    assert SweepSpec.model_validate(stored).callbacks[0].kind == "webhook"


def test_a_job_takes_the_address_of_a_webhook_from_a_variable() -> None:
    with pytest.raises(SpecError, match=r"webhook\.url: would be stored with the job's request"):
        check_portable(spec_with({"webhook": {"url": "https://hooks.slack.com/s3cret"}}))
    check_portable(spec_with({"webhook": {"url_from": "SLACK"}}))


def test_a_job_takes_no_object() -> None:
    with pytest.raises(SpecError, match="a Unpicklable object cannot be sent to a job"):
        check_portable(spec_with(Unpicklable()))


def test_callbacks_may_change_at_a_resume() -> None:
    one, two = spec_with("tensorboard"), spec_with("mlflow", Unpicklable())
    assert one.digest() == two.digest() == spec_with().digest()
    assert not changes(one, two)
    assert "callbacks" not in spec_with().to_dict()


def test_an_object_survives_a_replacement_and_is_stored_by_its_name() -> None:
    spec = spec_with(Unpicklable()).replace(num_samples=3)
    assert isinstance(spec.callbacks[0].held, Unpicklable)
    again = SweepSpec.from_json(spec.to_json())
    assert again.callbacks[0].kind.endswith(":Unpicklable")


def test_each_callback_has_a_place_of_its_own() -> None:
    spec = spec_with("tensorboard", {"tensorboard": {"logdir": "/a"}}, f"{HERE}:Writes", f"{HERE}:Writes")
    assert names_of(spec.callbacks) == ["tensorboard", "tensorboard-2", "Writes", "Writes-2"]
