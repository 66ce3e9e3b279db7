"""The version of raysweep. `raysweep.__version__` is this."""

from typing import Final

__version__: Final = "0.1.0"
