"""What an Airflow before 3.3 does not have: a try does without it, or the error gives the fix."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep_airflow import compat
from raysweep_airflow.retries import retry_policy


def test_without_a_task_state_store_a_try_keeps_its_values_itself() -> None:
    store = compat.store_of({"ti": None})
    assert store.get("raysweep") is None
    assert store.get("raysweep", 1) == 1
    store.set("raysweep", {"max_tries": 0})
    assert store.get("raysweep") == {"max_tries": 0}
    assert compat.store_of({}).get("raysweep") is None, "each try has one of its own"


def test_the_task_state_store_of_airflow_is_used_where_there_is_one() -> None:
    theirs: Any = SimpleNamespace()
    assert compat.store_of({compat.STORE: theirs}) is theirs


def test_a_retry_policy_needs_airflow_3_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "airflow.sdk", SimpleNamespace())
    with pytest.raises(SpecError, match=r"retry_policy: requires Airflow 3\.3 or newer"):
        retry_policy()


def test_the_names_are_airflows_own() -> None:
    assert issubclass(compat.AirflowFailException, compat.AirflowException)
    assert issubclass(compat.AirflowSkipException, compat.AirflowException)
    assert issubclass(compat.AirflowNotFoundException, compat.AirflowException)
    assert compat.conf.get("core", "dags_folder")
    assert hasattr(compat.BaseHook, "get_connection")
