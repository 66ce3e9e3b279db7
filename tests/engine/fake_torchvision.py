"""The part of torchvision that an example of Ray Tune's uses for data that it makes up.

Each wheel of torchvision fits one build of PyTorch, and none fits that of the tests: it cannot be imported.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch


class FakeData(torch.utils.data.Dataset[Any]):
    """So many pictures of noise, each with a class."""

    def __init__(
        self, size: int, image_size: tuple[int, ...], num_classes: int, transform: Callable[..., Any]
    ) -> None:
        self._size, self._shape, self._num_classes, self._transform = size, image_size, num_classes, transform

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> tuple[Any, int]:
        picture = torch.randn(self._shape, generator=torch.Generator().manual_seed(index))
        return self._transform(picture), index % self._num_classes


class ToTensor:
    """Gives what it is given: a tensor already."""

    def __call__(self, picture: Any) -> Any:
        return picture


def modules() -> dict[str, ModuleType]:
    """What stands in `sys.modules`, by name."""
    found = {
        name: ModuleType(name) for name in ("torchvision", "torchvision.datasets", "torchvision.transforms")
    }
    top, datasets, transforms = found.values()
    datasets.FakeData, transforms.ToTensor = FakeData, ToTensor  # type: ignore[attr-defined]
    top.datasets, top.transforms = datasets, transforms  # type: ignore[attr-defined]
    return found
