"""Names of files and folders that hold secrets, by which they are left out of uploads.

A reviewed list: each pattern has an example in `tests/unit/jobs/test_secret_names.py`, beside names that must
be uploaded. Names are compared in lower case. A copy (`.env~`, `server.key.old`, `.secrets.yaml.swp`) counts
as the original. Code is never taken for a secret by a word in its name: `secrets.py`, `token.ts`.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Final

KEYS: Final = (
    *("*.pem", "*.pem.*", "*.key", "*.key.*", "*.p8", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.ppk"),
    *("*.kdbx", "*.gpg", "*.ovpn", "*.jwt", "*.token", "*.secret", "*.secrets", "*.kubeconfig"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "wallet.dat"),
    *("key.json", "*-key.json", "*_key.json", "*firebase-adminsdk*.json"),
    *("client_secret*.json", "service_account*.json", "service-account*.json"),
    "application_default_credentials*",
)
"""Private keys, and files that are one credential."""

ENVIRONMENTS: Final = (".env*", "*.env", "env.local")
"""Files of environment variables."""

TOOLS: Final = (
    *(".netrc*", "_netrc", ".pgpass*", ".pypirc", ".npmrc", ".htpasswd", ".git-credentials*", ".condarc"),
    *(".dockercfg", ".dockerconfigjson", ".databrickscfg", ".s3cfg", ".boto", ".passwd-s3fs", ".my.cnf"),
    *(".mylogin.cnf", ".renviron", "auth.json", "connections.toml", "cookies.txt", "kaggle.json"),
    *("kubeconfig", "kubeconfig.*", "rclone.conf", "profiles.yml", "local_settings.py"),
    *("*.tfstate*", "*.tfvars", "*.tfvars.json", ".terraformrc", "terraform.rc", "*.tfrc.json"),
    *(".vault-token", ".vault_pass*", "vault_pass*", "*ansible_vault*", ".*_history"),
    *("airflow.cfg", "airflow.db", "webserver_config.py", "simple_auth_manager_passwords*", "mlflow.db"),
)
"""Settings and state of tools, which hold tokens, passwords or connections."""

FOLDERS: Final = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".snowflake", ".snowsql", ".oci", ".prefect"),
    *(".kaggle", ".huggingface", ".gcloud", ".terraform", ".terraform.d", "terraform.tfstate.d", ".secrets"),
)
"""Folders of such files, whatever is in them."""

WORDS: Final = (
    *("secret", "secrets", "credential", "credentials", "password", "passwords", "passwd", "passphrase"),
    *("api_key", "api_keys", "apikey", "apikeys", "secret_key", "private_key", "access_key"),
    *("token", "auth_token", "access_token", "api_token", "refresh_token", "hf_token"),
)
"""A file of data with such a name, alone or after a `.`, `-` or `_`: `credentials.yaml`, `db_password`."""
_DATA: Final = (
    *("", ".txt", ".json", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".xml", ".properties", ".csv"),
    *(".db", ".sqlite", ".enc"),
)
_MORE: Final = ("credentials*.json", "*credentials.json")

PATHS: Final = (".dvc/config.local", ".m2/settings.xml", ".config/gcloud", ".config/gh", "huggingface/token")
"""A name that says something only in its folder."""

_CODE: Final = (
    ".py",
    ".pyi",
    ".pyx",
    ".ipynb",
    ".md",
    ".rst",
    ".js",
    ".ts",
    ".c",
    ".h",
    ".cpp",
    ".rs",
    ".go",
)
_COPY: Final = re.compile(r"~$|\.(?:bak|backup|old|orig|save|sav|swp|swo|tmp|copy|disabled|rej|\d+)$")


def is_secret(name: str, *, folder: str = "", is_folder: bool = False) -> bool:
    """Whether a file or folder of this name, in a folder of that one, may hold secrets."""
    original = _original(name.lower())
    forms = {name.lower(), original, original.removeprefix(".") if original != name.lower() else original}
    return any(_is_listed(form, folder.lower(), is_folder=is_folder) for form in forms)


def is_secret_folder(name: str) -> bool:
    """Whether a folder that holds no code may hold secrets by its name."""
    return name.lower() in ("secret", "secrets", "credentials")


def _is_listed(name: str, folder: str, *, is_folder: bool) -> bool:
    patterns = (*KEYS, *ENVIRONMENTS, *TOOLS, *FOLDERS) if not name.endswith(_CODE) else (*TOOLS, *FOLDERS)
    if any(fnmatchcase(name, pattern) for pattern in patterns):
        return True
    if f"{folder}/{name}" in PATHS:
        return True
    return not is_folder and (_is_word(name) or any(fnmatchcase(name, pattern) for pattern in _MORE))


def _is_word(name: str) -> bool:
    stems = (name.removesuffix(ending) for ending in _DATA if name.endswith(ending))
    ends = tuple(f"{mark}{word}" for mark in ".-_" for word in WORDS)
    return any(stem in WORDS or stem.endswith(ends) for stem in stems)


def _original(name: str) -> str:
    """The name of the file that this one is a copy of, as editors and people call copies; else itself."""
    while (found := _COPY.sub("", name.strip("#"))) != name and found:
        name = found
    return name
