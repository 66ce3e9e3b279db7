"""The release of raysweep that submitted a job, beside the one that runs it.

A submitter writes its version into the metadata of the job. Ray hands the metadata to the driver in a
variable, so the driver reads the version before it reads the request, which another release may write in
another way.

Releases one minor version apart understand each other: an option that has its default is not sent, so only
an option that the cluster does not know is refused. Other releases are refused before anything starts.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from raysweep.errors import SpecError
from raysweep.tested import untested_here
from raysweep.version import __version__

FIELD: Final = "raysweep_version"
"""The key of the submitter's version in the metadata of a job."""
JOB_CONFIG: Final = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Ray's variable with the metadata of the job that a driver belongs to."""


def submitter_version(environ: Mapping[str, str]) -> str:
    """The version of the raysweep that submitted this job; empty where it is not known."""
    try:
        found = json.loads(environ.get(JOB_CONFIG) or "{}")["metadata"][FIELD]
    except (ValueError, KeyError, TypeError):
        return ""
    return found if isinstance(found, str) else ""


def are_near(one: str, other: str) -> bool:
    """True if two releases understand each other: of one major version, at most one minor version apart."""
    numbers = [re.match(r"(\d+)\.(\d+)", each) for each in (one, other)]
    if numbers[0] is None or numbers[1] is None:
        return one == other
    (major, minor), (other_major, other_minor) = ((int(each[1]), int(each[2])) for each in numbers if each)
    return major == other_major and abs(minor - other_minor) <= 1


def check_submitter(submitter: str, here: str = __version__) -> None:
    """Raises: SpecError where the submitter is of a release that this one does not understand."""
    if submitter and not are_near(submitter, here):
        raise SpecError(
            "raysweep", f"{_versions(submitter, here)}, more than one release apart", way_out(submitter, here)
        )


def explained(error: BaseException, submitter: str, here: str = __version__) -> BaseException:
    """The error; a bad spec also names the two releases where they differ, as that may be why."""
    if type(error) is not SpecError or submitter in ("", here) or error.field == "raysweep":
        return error
    advice = f"{error.fix}; or {way_out(submitter, here)}" if error.fix else way_out(submitter, here)
    return SpecError(error.field, f"{error.problem} ({_versions(submitter, here)})", advice)


def first_line(submitter: str, here: str = __version__) -> str:
    """The first line of a driver's log: the versions, another one of the submitter, what is not tested."""
    try:
        ray = version("ray")
    except PackageNotFoundError:
        ray = "not installed"
    said = [f"raysweep {here}, Ray {ray}, Python {platform.python_version()}"]
    if submitter not in ("", here):
        said.append(f"submitted by raysweep {submitter}")
    return "; ".join([*said, *untested_here()])


def way_out(submitter: str, here: str = __version__) -> str:
    """The way out of two releases that do not fit."""
    return f"install raysweep {submitter} in the cluster's image, or raysweep {here} where it is submitted"


def _versions(submitter: str, here: str) -> str:
    return f"the job was submitted by raysweep {submitter}, and the cluster has raysweep {here}"
