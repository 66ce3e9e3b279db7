"""Each pattern of the list has an example here; and names of code and data that must be uploaded."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from raysweep.jobs.code import secret_names
from raysweep.jobs.code.packaging import pack_working_dir
from raysweep.jobs.code.secret_names import is_secret


def words(text: str) -> list[str]:
    return text.split()


SECRET = words("""
server.pem ca.pem.gz tls.KEY server.key.age apns.p8 cert.p12 cert.pfx store.jks debug.keystore putty.ppk
pass.kdbx mail.gpg office.ovpn login.jwt bot.token jwt.secret app.secrets prod.kubeconfig id_rsa id_rsa.pub
id_dsa id_ecdsa_sk id_ed25519 wallet.dat key.json gcp-key.json sa_key.json my-firebase-adminsdk-x.json
client_secret_1.json service_account_7.json service-account.json application_default_credentials.json .env
.env.local .envrc .ENV prod.env env.local .netrc .netrc.gpg _netrc .pgpass .pypirc .npmrc .htpasswd
.git-credentials .condarc .dockercfg .dockerconfigjson .databrickscfg .s3cfg .boto .passwd-s3fs .my.cnf
.mylogin.cnf .Renviron auth.json connections.toml cookies.txt kaggle.json kubeconfig kubeconfig.prod
rclone.conf profiles.yml local_settings.py terraform.tfstate terraform.tfstate.1.backup prod.tfvars
prod.tfvars.json .terraformrc terraform.rc credentials.tfrc.json .vault-token .vault_pass.txt vault_pass.txt
ansible_vault.yml .bash_history .python_history airflow.cfg airflow.db webserver_config.py
simple_auth_manager_passwords.json.generated mlflow.db secret.txt secrets secrets.yaml secrets.ini
prod.secrets.yaml db-secrets.json credential credentials credentials.yaml credentials.yml credentials.toml
aws_credentials credentials-prod.json google-credentials.json credentials.db .credentials password.txt
passwords.json db_passwd passphrase api_key.txt .wandb_api_key api_keys.json apikey apikeys.txt
secret_key.txt private_key private_key.txt access_key.csv token token.json auth_token access_token.txt
api_token refresh_token hf_token serviceAccount.json my.serviceAccount.json rootkey.csv accessKeys.csv
accessTokens.json msal_token_cache.json msal_token_cache.bin keystore truststore.bin htpasswd secretKeys.ini
privateKeys.json auth-tokens.json refreshTokens.json apiTokens.yaml apiKeys.csv access-key.csv db.Password.txt
credentials-prod.yaml secrets_2.toml authToken
store.pkcs12 airflow.keytab user.ccache krb5cc_1000 prod.publishsettings secring.gpg secring.bin env core
core.1234 heap.hprof crash.dmp pg_dump_2026.sql backup.sql mlruns.db basic_auth.ini prefect.db clearml.conf
.comet.config sentry.properties pip.conf pip.ini uv.toml auth.toml .yarnrc.yml .gitconfig .sentryclirc
.rclone.conf boto.cfg my.cnf odbc.ini .odbc.ini pg_service.conf .pg_service.conf
""")
COPIES = words("""
.env~ .env.bak .env.swp .env.old~ server.key.old my.pem.bak secrets.yaml.orig .secrets.yaml.swp
#credentials.yaml# .pgpass~ .git-credentials.bak airflow.cfg.bak airflow.db.1 id_rsa.old token.tmp
gcp-key.json.save kaggle.json.copy
""")
FOLDERS = words("""
.ssh .gnupg .aws .azure .kube .docker .snowflake .snowsql .oci .prefect .kaggle .huggingface .gcloud
.terraform .terraform.d terraform.tfstate.d .secrets .AWS
""")
PLAIN = words("""
train.py secrets.py token.py credentials.py passwords.py api_key.ts keys.py key.py tokenizer.json
tokenizer_config.json special_tokens_map.json added_tokens.json vocab.json merges.txt environment.py
environment.yml keyboard.json monkey.json turkey-data.csv config.yaml config.json settings.py settings.xml
config.local history.py model.pt data.db results.sqlite secretary.txt tokens.txt README.md secrets.md
Dockerfile keynote.pdf passwordless.txt airflow.py airflow_local.yaml hosts.yml train.sql pyproject.toml
setup.cfg .gitignore .dvc .dvcignore cookies.py auth.py author.json core.py core.yaml env.py schema.sql
queries.sql tokenizer_cache.json token_counts.csv monKey.json hotKeys.json keywords.txt pipeline.conf
odometry.ini poetry.lock uv.lock package.json test_cache.db local.yaml backup.yaml settings.toml
""")


@pytest.mark.parametrize("name", [*SECRET, *COPIES])
def test_a_file_that_may_hold_secrets_is_known_by_its_name(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_of_them_too(name: str) -> None:
    assert is_secret(name, is_folder=True)


@pytest.mark.parametrize("name", PLAIN)
def test_code_and_data_are_not_taken_for_secrets(name: str) -> None:
    assert not is_secret(name)
    assert not is_secret(f"{name}.bak")
    assert not is_secret(name.partition(".")[0] or name, is_folder=True)


@pytest.mark.parametrize("path", secret_names.PATHS)
def test_some_names_say_something_only_in_their_folder(path: str) -> None:
    folder, _, name = path.rpartition("/")
    assert is_secret(name, folder=folder)
    assert name == "token" or not is_secret(name, folder="other")


def test_every_pattern_has_an_example() -> None:
    lists = (secret_names.KEYS, secret_names.ENVIRONMENTS, secret_names.IMAGES)
    patterns = [each for names in (*lists, secret_names.TOOLS, secret_names.FOLDERS) for each in names]
    examples = [name.lower() for name in (*SECRET, *FOLDERS)]
    assert [each for each in patterns if not any(fnmatchcase(name, each) for name in examples)] == []
    stems = {re.sub(r"[^a-z]", "", name.strip(".").partition(".")[0]) for name in examples}
    missing = [word for word in secret_names.WORDS if not any(stem.endswith(word) for stem in stems)]
    assert missing == []


@pytest.mark.parametrize("name", ["core", "env", "tokens", "keystore"])
def test_a_package_may_have_the_name_of_a_file_that_is_left_out(name: str) -> None:
    assert not is_secret(name, is_folder=True)


def test_what_a_package_leaves_out_is_listed(tmp_path: Path) -> None:
    paths = ["train.py", "secrets/db.txt", "src/secrets/__init__.py", ".dvc/config", ".dvc/config.local"]
    paths += [".huggingface/token", "conf/airflow.cfg", "lib/secrets.py", "cache/huggingface/token"]
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    (tmp_path / "harmless").symlink_to(".dvc/config.local")
    package = pack_working_dir(tmp_path)
    taken = {".dvc/config", "lib/secrets.py", "src/secrets/__init__.py", "train.py"}
    assert {entry.name for entry in package.entries} == taken
    left = {each.path for each in package.left_out if each.why == "may hold secrets"}
    assert left == {
        *("secrets/", ".dvc/config.local", ".huggingface/", "conf/airflow.cfg"),
        *("cache/huggingface/token", "harmless"),
    }
