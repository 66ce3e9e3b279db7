"""The dashboard: all runs of a storage path in a browser, read-only, served by this process."""

from raysweep.report.dashboard.access import Access
from raysweep.report.dashboard.server import serving

__all__ = ["Access", "serving"]
