"""The Ray that the programs of users run on."""

from tests.engine.conftest import ray_cluster

__all__ = ["ray_cluster"]
