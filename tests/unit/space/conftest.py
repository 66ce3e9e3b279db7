"""The fixtures of a small sweep spec."""

from __future__ import annotations

from tests.unit.specs.small import fields as fields
from tests.unit.specs.small import refusal as refusal
from tests.unit.specs.small import spec as spec
