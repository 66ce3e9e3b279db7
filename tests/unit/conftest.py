"""How Hypothesis runs here: no example has a time limit, as machines are busy; a test as a whole has one."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile(
    "raysweep", settings.get_profile(settings.get_current_profile_name()), deadline=None
)
settings.load_profile("raysweep")
