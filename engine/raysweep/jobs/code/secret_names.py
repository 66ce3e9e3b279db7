"""Names of files and folders that hold secrets, by which they are left out of uploads.

A reviewed list of kinds: keys, environments, settings and state of tools, folders of these, images of memory
and databases, and data files with a telling word at the end of their name. Each pattern has an example in
`tests/unit/jobs/test_secret_names.py`, beside names that must be uploaded.

Names are compared in lower case, their words however they are joined: `serviceAccount`, `service-account`. A
copy (`.env~`, `server.key.old`, `.secrets.yaml.swp`) counts as the original. Code is never taken for a secret
by a word in its name: `secrets.py`, `token.ts`. What is left out is listed by name with the job.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Final

KEYS: Final = (
    *("*.pem", "*.pem.*", "*.key", "*.key.*", "*.p8", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.ppk"),
    *("*.kdbx", "*.gpg", "*.ovpn", "*.jwt", "*.token", "*.secret", "*.secrets", "*.kubeconfig"),
    *("*.pkcs12", "*.keytab", "*.ccache", "krb5cc_*", "*.publishsettings", "secring.*"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "wallet.dat"),
    *("key.json", "*-key.json", "*_key.json", "*firebase-adminsdk*.json"),
    *("client_secret*.json", "service_account*.json", "service-account*.json", "serviceaccount*.json"),
    "application_default_credentials*",
)
"""Private keys, and files that are one credential."""

ENVIRONMENTS: Final = (".env*", "*.env", "env.local")
"""Files of environment variables."""

IMAGES: Final = ("env", "core", "core.[0-9]*", "*.hprof", "*.dmp", "*dump*.sql", "*backup*.sql")
"""Files, and no folders: a process's environment or memory, a database's rows."""

TOOLS: Final = (
    *(".netrc*", "_netrc", ".pgpass*", ".pypirc", ".npmrc", ".htpasswd", ".git-credentials*", ".condarc"),
    *(".dockercfg", ".dockerconfigjson", ".databrickscfg", ".s3cfg", ".boto", ".passwd-s3fs", ".my.cnf"),
    *(".mylogin.cnf", ".renviron", "auth.json", "connections.toml", "cookies.txt", "kaggle.json"),
    *("kubeconfig", "kubeconfig.*", "rclone.conf", "profiles.yml", "local_settings.py"),
    *("*.tfstate*", "*.tfvars", "*.tfvars.json", ".terraformrc", "terraform.rc", "*.tfrc.json"),
    *(".vault-token", ".vault_pass*", "vault_pass*", "*ansible_vault*", ".*_history"),
    *("airflow.cfg", "airflow.db", "webserver_config.py", "simple_auth_manager_passwords*", "mlflow.db"),
    *("mlruns.db", "basic_auth.ini", "prefect.db", "clearml.conf", ".comet.config", "sentry.properties"),
    *("pip.conf", "pip.ini", "uv.toml", "auth.toml", ".yarnrc*", ".gitconfig", ".sentryclirc"),
    *(".rclone.conf", "boto.cfg", "my.cnf", "odbc.ini", ".odbc.ini", "pg_service.conf", ".pg_service.conf"),
)
"""Settings and state of tools, which hold tokens, passwords or connections."""

FOLDERS: Final = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".snowflake", ".snowsql", ".oci", ".prefect"),
    *(".kaggle", ".huggingface", ".gcloud", ".terraform", ".terraform.d", "terraform.tfstate.d", ".secrets"),
)
"""Folders of such files, whatever is in them."""

WORDS: Final = frozenset(
    {
        *("secret", "secrets", "credential", "credentials", "password", "passwords", "passwd", "passphrase"),
        *(
            "apikey",
            "apikeys",
            "secretkey",
            "secretkeys",
            "privatekey",
            "privatekeys",
            "accesskey",
            "accesskeys",
        ),
        *("rootkey", "serviceaccount", "keystore", "truststore", "htpasswd"),
        *("token", "authtokens", "accesstokens", "refreshtokens", "apitokens"),
    }
)
"""A file of data whose name ends with such a word: `credentials.yaml`, `db_password`, `accessKeys.csv`."""
_AFTER: Final = frozenset(
    {
        *(
            "cache",
            "store",
            "file",
            "prod",
            "production",
            "staging",
            "dev",
            "test",
            "local",
            "live",
            "backup",
        ),
    }
)
"""Words that say nothing of their own after it: `msal_token_cache.json`, `credentials-prod.json`."""
_DATA: Final = (
    *("", ".txt", ".json", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".xml", ".properties", ".csv"),
    *(".db", ".sqlite", ".enc", ".bin"),
)
_MORE: Final = ("credentials*.json", "*credentials.json")

PATHS: Final = (
    *(".dvc/config.local", ".m2/settings.xml", ".config/gcloud", ".config/gh", "huggingface/token"),
    *("prefect/profiles.toml", "wandb/settings"),
)
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
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SPLIT: Final = re.compile(r"[^A-Za-z0-9]+")
_COPY: Final = re.compile(
    r"~$|\.(?:bak|backup|old|orig|save|sav|swp|swo|tmp|copy|disabled|rej|\d+)$", re.IGNORECASE
)


def is_secret(name: str, *, folder: str = "", is_folder: bool = False) -> bool:
    """True if a file or folder of this name, in a folder of that one, may hold secrets."""
    original = _original(name)
    forms = {name, original, original.removeprefix(".") if original != name else original}
    return any(_is_listed(form, folder.lower(), is_folder=is_folder) for form in forms)


def is_secret_folder(name: str) -> bool:
    """True if a folder that holds no code may hold secrets by its name."""
    return name.lower() in ("secret", "secrets", "credentials")


def _is_listed(given: str, folder: str, *, is_folder: bool) -> bool:
    name = given.lower()
    patterns = (*KEYS, *ENVIRONMENTS, *TOOLS, *FOLDERS) if not name.endswith(_CODE) else (*TOOLS, *FOLDERS)
    if any(fnmatchcase(name, pattern) for pattern in patterns):
        return True
    if f"{folder}/{name}" in PATHS:
        return True
    return not is_folder and (
        any(fnmatchcase(name, pattern) for pattern in (*IMAGES, *_MORE)) or _ends_with_word(given)
    )


def _ends_with_word(name: str) -> bool:
    """True if the name of a data file ends with one of the words, which may be joined in any way."""
    stems = (name[: len(name) - len(ending)] for ending in _DATA if name.lower().endswith(ending))
    return any(_tells(_words(stem)) for stem in stems)


def _tells(words: list[str]) -> bool:
    while len(words) > 1 and (words[-1] in _AFTER or words[-1].isdigit()):
        words = words[:-1]
    return any("".join(words[-count:]) in WORDS for count in (1, 2) if len(words) >= count)


def _words(stem: str) -> list[str]:
    """`accessKeys`, `access-keys` and `access.keys` as `access`, `keys`."""
    return [word.lower() for word in _SPLIT.split(_CAMEL.sub("_", stem)) if word]


def _original(name: str) -> str:
    """The name of the file that this one is a copy of, as editors and people call copies; else itself."""
    while (found := _COPY.sub("", name.strip("#"))) != name and found:
        name = found
    return name
