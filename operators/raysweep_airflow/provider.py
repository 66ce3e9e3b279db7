"""The parts of the provider by name, for Airflow. Imports nothing."""

from __future__ import annotations

from typing import Any, Final

NAME: Final = "raysweep"
PACKAGE: Final = "raysweep"
CONNECTION_TYPE: Final = "raysweep"
DEFAULT_CONN_ID: Final = "raysweep_default"


def get_provider_info() -> dict[str, Any]:
    """The provider's metadata, in the form of Airflow's `provider_info.schema.json`."""
    return {
        "package-name": PACKAGE,
        "name": NAME,
        "description": "Hyperparameter sweeps on Ray as Airflow tasks.",
        "integrations": [
            {
                "integration-name": NAME,
                "external-doc-url": "https://docs.ray.io/en/latest/cluster/running-applications/job-submission",
                "tags": ["service"],
            }
        ],
        "hooks": [_modules("hooks")],
        "operators": [_modules(name) for name in ("operators", "approval", "judging")],
        "triggers": [_modules("triggers")],
        "connection-types": [
            {
                "connection-type": CONNECTION_TYPE,
                "hook-class-name": "raysweep_airflow.hooks.RaySweepHook",
                "hook-name": "Ray cluster (raysweep)",
                "conn-fields": _fields(),
                "ui-field-behaviour": {
                    "hidden-fields": ["schema", "login", "extra"],
                    "relabeling": {"host": "Address", "password": "Token"},
                    "placeholders": {
                        "host": "https://ray.example.com, or http://head (with the port beside)",
                        "port": "8265",
                        "password": "the cluster's RAY_AUTH_TOKEN",
                        "storage_path": "s3://bucket/sweeps",
                    },
                },
            }
        ],
        "extra-links": [
            f"raysweep_airflow.links.{name}" for name in ("RayJobLink", "SweepLink", "ReportLink")
        ],
        "task-decorators": [{"name": "sweep", "class-name": "raysweep_airflow.decorators.sweep_task"}],
    }


def _modules(name: str) -> dict[str, Any]:
    return {"integration-name": NAME, "python-modules": [f"raysweep_airflow.{name}"]}


def _fields() -> dict[str, Any]:
    """The fields of the form beside address, port and token; stored in the connection's extra."""
    text, number = ["string", "null"], ["number", "null"]
    return {
        "storage_path": _field("Storage path", text, "The storage of sweeps whose spec names none."),
        "verify": _field("Verify TLS", ["boolean", "null"], "Check the server's certificate.", default=True),
        "ca_bundle": _field("CA bundle", text, "A PEM file with the authorities to trust, on workers."),
        "client_cert": _field("Client certificate", text, "A PEM file, where the server asks for one."),
        "client_key": _field("Client key", text, "Its key, if it is in a separate file."),
        "proxy": _field("Proxy", text, "Default: HTTPS_PROXY and NO_PROXY.", format="password"),
        # Airflow masks fields by such names as this one, in its API too.
        "auth_headers": _field("Headers", text, "Further headers, as a JSON object.", format="password"),
        "dashboard_url": _field("Dashboard URL", text, "For links; default: the address itself."),
        "request_timeout_s": _field("Request timeout", number, "Seconds for one answer.", default=60),
    }


def _field(label: str, type_: list[str], description: str, **schema: Any) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": type_} | schema}
