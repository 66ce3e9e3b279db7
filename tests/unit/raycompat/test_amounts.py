"""Which amounts of a resource Ray takes: what specs say of it beside Ray's own checks."""

from __future__ import annotations

import pytest

from raysweep.space.amounts import CUSTOM, LEAST, WHOLE_DEVICES, refusal

pytest.importorskip("ray")

from ray._common.ray_option_utils import _validate_resource_quantity
from ray._private.accelerators import get_all_accelerator_resource_names

from tests.unit.raycompat.moved import since

DEVICES = sorted(get_all_accelerator_resource_names() - {"GPU"})


@since(2, 59)
def test_the_devices_that_are_not_shared_are_all_known() -> None:
    """An older Ray knows fewer."""
    assert set(DEVICES) > WHOLE_DEVICES


@pytest.mark.parametrize("name", [*DEVICES, "licence"])
@pytest.mark.parametrize("amount", [0.0, LEAST / 2, LEAST, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0, 16.0])
def test_an_amount_is_refused_where_ray_would_raise(name: str, amount: float) -> None:
    raises = amount > 0 and _validate_resource_quantity(name, amount) is not None
    assert bool(refusal(CUSTOM + name, amount)) == raises
