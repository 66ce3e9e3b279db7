"""Reports of sweeps: one self-contained HTML file, made of what is stored. Needs no Ray.

The page's parts (`static/`) are plain scripts and one style sheet, without a build step.
"""

from raysweep.pages.write import write_report

__all__ = ["write_report"]
