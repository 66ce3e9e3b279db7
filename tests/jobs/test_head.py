"""The head that the tests share: it can be killed whole, and comes back on the same ports, forgetful."""

from __future__ import annotations

import pytest

from tests.jobs.head import Head

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_head_is_killed_whole_and_comes_back(head: Head) -> None:
    before = set(head.processes())
    assert len(before) > 5
    head.kill()
    assert not head.processes()
    assert not head.answers()
    head.start()
    assert head.answers()
    assert not before & set(head.processes())
