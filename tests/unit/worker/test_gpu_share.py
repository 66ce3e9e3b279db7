"""JAX and TensorFlow are told that they have a part of a GPU, unless the user has told them something."""

from __future__ import annotations

import os

import pytest

from raysweep.worker.host.gpu_share import _OF_JAX, JAX_PART, TENSORFLOW_GROWS, limit_share


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*_OF_JAX, TENSORFLOW_GROWS):
        monkeypatch.setenv(name, "")  # so that it is put back afterwards
        monkeypatch.delenv(name)


def test_both_keep_to_a_part_of_a_gpu() -> None:
    limit_share(0.25)
    assert os.environ[JAX_PART] == "0.225"
    assert os.environ[TENSORFLOW_GROWS] == "true"


@pytest.mark.parametrize("gpus", [0.0, 1.0, 2.0])
def test_whole_gpus_are_theirs(gpus: float) -> None:
    limit_share(gpus)
    assert JAX_PART not in os.environ
    assert TENSORFLOW_GROWS not in os.environ


@pytest.mark.parametrize("name", _OF_JAX)
def test_what_the_user_has_set_stands(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "0.1")
    monkeypatch.setenv(TENSORFLOW_GROWS, "false")
    limit_share(0.5)
    assert {each for each in _OF_JAX if each in os.environ} == {name}
    assert os.environ[name] == "0.1"
    assert os.environ[TENSORFLOW_GROWS] == "false"
