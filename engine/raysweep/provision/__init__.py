"""Clusters that are brought up for a run and removed after it, on Kubernetes through KubeRay. Needs no Ray.

A cluster is a KubeRay `RayJob` whose job is a keeper (`keeper.py`): it ends once no other job has run on the
cluster for a while, and KubeRay then deletes the cluster. So no cluster depends on the process that asked
for it: that process may die at any moment, and the next one adopts the cluster by its name.
"""

from __future__ import annotations

from raysweep.provision.document import NightCluster
from raysweep.provision.lifetime import up
from raysweep.provision.night import Leaked, bring_up, find_leaked, remove, tear_down

__all__ = ["Leaked", "NightCluster", "bring_up", "find_leaked", "remove", "tear_down", "up"]
