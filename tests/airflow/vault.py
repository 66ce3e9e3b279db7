"""A secrets backend of the tests: connections as files, and it fails for as long as `down` is there."""

from __future__ import annotations

from pathlib import Path

from airflow.sdk.bases.secrets_backend import BaseSecretsBackend


class Vault(BaseSecretsBackend):
    """Knows the connections `<folder>/<id>.json`; where it fails, it notes that in `<folder>/failed`."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = Path(folder)

    def get_conn_value(self, conn_id: str, team_name: str | None = None) -> str | None:
        """As JSON; None of what it does not know."""
        path = self.folder / f"{conn_id}.json"
        if not path.exists():
            return None
        if (self.folder / "down").exists():
            with (self.folder / "failed").open("a") as failed:
                failed.write(f"{conn_id}\n")
            raise OSError("503 the vault is sealed")
        return path.read_text()

    def get_variable(self, key: str, team_name: str | None = None) -> str | None:
        """It has none."""
        return None
