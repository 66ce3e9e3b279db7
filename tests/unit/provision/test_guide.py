"""What the guide and the role say of a cluster for the night."""

from __future__ import annotations

import re

import yaml

from raysweep.provision import NightCluster
from raysweep.provision.manifest import render
from tests.unit.provision.conftest import ROOT
from tests.unit.provision.schema import problems_of

GUIDE = (ROOT / "docs/guides/cluster.md").read_text().partition("## A cluster for the night")[2]
SECTION = GUIDE.partition("\n## ")[0]


def test_the_manifest_of_the_guide_is_what_the_operator_accepts() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", SECTION, re.DOTALL)
    night = NightCluster(rayjob="night.yaml")
    job = render(yaml.safe_load(text), night, run_id="flights-1", namespace="ml", now=0.0)
    assert problems_of(job) == []


def test_the_guide_names_the_options_and_their_defaults() -> None:
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| [^|]+ \| ([^|]+) \|$", SECTION, re.MULTILINE)
    named = {name for row, _ in rows for name in re.findall(r"\w+", row)}
    assert named == set(NightCluster.model_fields) - {"rayjob", "launcher"}
    defaults = {row.strip("`"): value for row, value in rows}
    fields = NightCluster.model_fields
    assert float(defaults["ready_s"]) == fields["ready_s"].default
    assert float(defaults["idle_s"]) == fields["idle_s"].default


def test_the_role_allows_what_is_asked_of_kubernetes_and_no_more() -> None:
    documents = list(yaml.safe_load_all((ROOT / "deploy/night-rbac.yaml").read_text()))
    (role,) = [each for each in documents if each["kind"] == "Role"]
    allowed = {rule["resources"][0]: set(rule["verbs"]) for rule in role["rules"]}
    assert allowed == {
        "rayjobs": {"get", "list", "create", "patch", "delete"},
        "secrets": {"get"},
        "services/proxy": {"get", "create", "update", "delete"},
    }
