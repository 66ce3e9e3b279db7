"""The network of LightGBM's workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raysweep.raycompat.frameworks import find_places, set_network


class Workers:
    """A worker group of this process."""

    def execute(self, call: Callable[[], Any]) -> list[Any]:
        return [call(), call()]


def test_each_worker_says_where_it_is() -> None:
    places = find_places(Workers())
    assert len(places) == 2
    assert all(isinstance(host, str) and 1024 < port < 65536 for host, port in places)


def test_the_network_is_what_ray_hands_to_the_training_function() -> None:
    from ray.train.lightgbm import get_network_params

    set_network(2, 4321, "a:4321,b:4322")
    assert get_network_params() == {"machines": "a:4321,b:4322", "local_listen_port": 4321, "num_machines": 2}
