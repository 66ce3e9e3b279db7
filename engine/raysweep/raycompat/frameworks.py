"""The network of a training's workers, as Ray Train's trainers of LightGBM and TensorFlow set it up."""

from __future__ import annotations

from typing import Any


def find_places(worker_group: Any) -> list[tuple[str, int]]:
    """Host and a free port of each worker, by rank."""
    from ray.train._internal.utils import get_address_and_port

    places: list[tuple[str, int]] = worker_group.execute(get_address_and_port)
    return places


def set_network(num_machines: int, port: int, machines: str) -> None:
    """In a worker: what `ray.train.lightgbm.get_network_params()` is to give."""
    from ray.train.lightgbm.config import _set_network_params

    _set_network_params(num_machines, port, machines)
