"""Ray's own reading of `deploy/raycluster.yaml`, which its autoscaler does beside the head."""

from __future__ import annotations

from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]


def test_the_autoscaler_makes_of_the_file_what_the_guide_says() -> None:
    """By Ray's own reading of it: as many nodes, of that size, none of the head."""
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr

    cluster = yaml.safe_load((ROOT / "deploy/raycluster.yaml").read_text())
    cluster["metadata"]["namespace"] = "default"
    config = _derive_autoscaling_config_from_ray_cr(cluster)
    types = config["available_node_types"]
    assert types["headgroup"]["resources"]["CPU"] == 0
    assert (types["cpu"]["min_workers"], types["cpu"]["max_workers"]) == (1, 10)
    assert types["cpu"]["resources"]["CPU"] == 4
    assert config["idle_timeout_minutes"] == 5
    guide = (ROOT / "docs/guides/cluster.md").read_text()
    assert "grows from 1 to 10" in guide
