"""The request of a job: the content of `raysweep_job/request.json`, a package of its own.

It is kept apart from `working_dir`, so that that large package has the same bytes, and the same address,
every night. It holds no secret: those travel as `env_vars` of the job.
"""

from __future__ import annotations

from typing import Any, Literal

import orjson

from raysweep.documents.base import SpecModel
from raysweep.documents.text import read_json
from raysweep.specs.continuing import Continue
from raysweep.specs.identity import Kind

FOLDER = "raysweep_job"
"""The folder inside the package; it lies on `sys.path` of the driver."""
FILE = "request.json"
ENTRYPOINT = "python -m raysweep.jobs.driver"


class RequestOptions(Continue):
    """The options of the driver: how to continue the sweep, and for how long to hold it."""

    lease_ttl_s: float | None = None
    """End the sweep, resumably, this many seconds after the last renewal of its lease; None: never."""
    takeover: bool = False
    """Take the sweep from a controller that seems to live."""


class JobRequest(SpecModel):
    """The request of one job: a sweep or a training run."""

    format: Literal[1] = 1
    kind: Kind
    key: str
    spec: dict[str, Any]
    """The spec as its `to_dict` makes it."""
    options: RequestOptions = RequestOptions()

    def to_json(self) -> bytes:
        """As JSON with sorted keys: equal requests have equal bytes.

        Options with their default are left out: a driver of an older release may not know them.
        """
        fields = self.model_dump(mode="json")
        fields["options"] = self.options.model_dump(mode="json", exclude_defaults=True)
        return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)

    @classmethod
    def from_json(cls, text: str | bytes) -> JobRequest:
        """From JSON. Raises SpecError for what is no request, or one of a later format."""
        return cls.model_validate(read_json(text, f"{FOLDER}/{FILE}"))
