"""The callbacks of raysweep: the name in a spec, and where its options are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

KINDS: Final[Mapping[str, str]] = {
    "webhook": "raysweep.hooks.webhook:WebhookOptions",
    "tensorboard": "raysweep.hooks.tensorboard:TensorBoardOptions",
    "mlflow": "raysweep.hooks.mlflow:MlflowOptions",
    "wandb": "raysweep.hooks.wandb:WandbOptions",
    "otel": "raysweep.hooks.otel:OtelOptions",
    "prometheus": "raysweep.hooks.prometheus:PrometheusOptions",
}
