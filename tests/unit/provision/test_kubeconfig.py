"""How to get in: kubeconfigs, plugins, service accounts. No secret is shown."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

import pytest

from raysweep.errors import SpecError
from raysweep.provision.kubeconfig import find_access
from tests.unit.jobs.api import make_certificate
from tests.unit.provision.conftest import write_config


def token_of(path: Path, *, is_refused: bool = False) -> str:
    token = find_access(str(path)).token.read(is_refused=is_refused)
    return token.get_secret_value() if token is not None else ""


def test_a_token_and_the_namespace_of_the_context(tmp_path: Path) -> None:
    access = find_access(str(write_config(tmp_path / "config", "https://kube:6443/", token="secret")))
    assert (access.server, access.namespace, access.is_pod) == ("https://kube:6443", "ml", False)
    assert token_of(tmp_path / "config") == "secret"
    assert "secret" not in repr(access)


def test_certificates_in_the_file_become_private_files(tmp_path: Path) -> None:
    pem = make_certificate(tmp_path).read_bytes()
    data = base64.b64encode(pem).decode()
    path = write_config(
        tmp_path / "config", "https://kube", **{"client-certificate-data": data, "client-key-data": data}
    )
    access = find_access(str(path))
    assert access.cert_file is not None
    assert Path(access.cert_file).read_bytes() == pem
    assert Path(access.cert_file).stat().st_mode & 0o077 == 0
    access.ssl_context()


def test_relative_files_are_beside_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(" t \n")
    assert token_of(write_config(tmp_path / "config", "https://kube", tokenFile="token")) == "t"


def test_a_plugin_is_run_once_until_its_token_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "plugin.py"
    count = tmp_path / "count"
    script.write_text(
        "import json, os, pathlib\n"
        "assert json.loads(os.environ['KUBERNETES_EXEC_INFO'])['kind'] == 'ExecCredential'\n"
        f"count = pathlib.Path({str(count)!r})\n"
        "n = len(count.read_text()) + 1 if count.exists() else 1\n"
        "count.write_text('x' * n)\n"
        "print(json.dumps({'status': {'token': f'{os.environ[\"WHO\"]}-{n}'}}))\n"
    )
    plugin = {"command": sys.executable, "args": [str(script)], "env": [{"name": "WHO", "value": "me"}]}
    access = find_access(str(write_config(tmp_path / "config", "https://kube", exec=plugin)))

    def read(*, is_refused: bool = False) -> str:
        token = access.token.read(is_refused=is_refused)
        assert token is not None
        return token.get_secret_value()

    assert (read(), read(), read(is_refused=True)) == ("me-1", "me-1", "me-2")


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import sys; sys.exit('SSO session has expired')", "code 1: SSO session has expired"),
        ('print(\'{"status": {"secret": 1}}\')', "gave no token"),
        ("print('hunter2')", "gave no token"),
    ],
)
def test_a_plugin_that_fails_is_one_line(tmp_path: Path, program: str, words: str) -> None:
    plugin = {"command": sys.executable, "args": ["-c", program]}
    with pytest.raises(SpecError) as caught:
        token_of(write_config(tmp_path / "config", "https://kube", exec=plugin))
    assert words in str(caught.value)
    assert "log in" in caught.value.fix
    assert "hunter2" not in str(caught.value)


def test_a_pod_uses_its_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("of-the-pod")
    (tmp_path / "namespace").write_text("nights")
    monkeypatch.setenv("RAYSWEEP_SERVICE_ACCOUNT", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    access = find_access()
    assert (access.server, access.namespace, access.is_pod) == ("https://10.0.0.1:443", "nights", True)
    (tmp_path / "token").write_text("rotated")
    token = access.token.read()
    assert token is not None
    assert token.get_secret_value() == "rotated"


def test_of_several_files_the_first_entry_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = write_config(tmp_path / "a", "https://first", token="1")
    second = write_config(tmp_path / "b", "https://second", token="2")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'none'}:{first}:{second}")
    assert find_access().server == "https://first"


def test_without_any_the_three_ways_are_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="set KUBECONFIG, or run in a pod"):
        find_access()


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([1], "is not a kubeconfig"),
        ({"current-context": "x"}, "has no context 'x'; it has none"),
        ({"current-context": "x", "contexts": [{"name": "x", "context": {}}]}, "names no server"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_says_why(tmp_path: Path, document: object, words: str) -> None:
    path = tmp_path / "config"
    path.write_text(json.dumps(document))
    with pytest.raises(SpecError, match=words):
        find_access(str(path))


def test_ways_to_log_in_that_are_not_supported_are_named(tmp_path: Path) -> None:
    path = write_config(tmp_path / "config", "https://kube", **{"auth-provider": {"name": "gcp"}})
    with pytest.raises(SpecError, match="exec plugin"):
        find_access(str(path))
