"""The dashboard: all runs of a storage path in a browser, read-only, served by this process."""

from raysweep.pages.dashboard.access import Access
from raysweep.pages.dashboard.server import serving

__all__ = ["Access", "serving"]
