"""The reason why a remote store refused a request, and what to do about it.

obstore's text begins with the request and ends with the answer of the store: the code in it tells what is
wrong. S3 and its look-alikes answer in XML, Google Cloud Storage also in JSON; the answer to a HEAD is a
status alone. Of an answer only the code and the message are shown: others of its fields have keys.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import Final

from raysweep.errors import one_line

_DEBUG: Final = "\n\nDebug source:"
_STATUS: Final = re.compile(r"status code: (\d{3})\b ?([A-Za-z ]*)")
_CODE: Final = re.compile(r"<Code>\s*([\w.-]{1,100})\s*</Code>")
_MESSAGE: Final = re.compile(r"<Message>(.*?)</Message>", re.DOTALL)
_JSON_MESSAGE: Final = re.compile(r'"message"\s*:\s*"((?:[^"\\]|\\.)*)"')
_PLACE: Final = re.compile(r"<(?:Region|Endpoint)>([\w.:/-]{1,200})</")
_CAUSE: Final = re.compile(r'\b(?:message|error): "([^"]+)"')
"""The cause of a connection that failed, in obstore's debug text: its last one is the first one."""
_MAX_CHARS: Final = 240
_OWN_SERVICES: Final = ("http://169.254.169.254/", "http://169.254.170.2/", "http://metadata")
"""The services that are asked for credentials if none are given: on a machine of AWS, Azure or Google."""

_CLOCK: Final = "set this machine's clock (NTP): it differs from the store's"
_TOKEN: Final = "renew the credentials: the session token (AWS_SESSION_TOKEN) is not valid any more"
_REGION: Final = "set AWS_REGION to the bucket's region"
_SPACE: Final = "free space in the store, or raise its quota"
_SLOW: Final = "wait: the store is busy and asks for fewer requests"
_AGAIN: Final = "try again later"
_UNKNOWN: Final = "use a store that supports this request: conditional writes (If-None-Match) are required"
_POLICY: Final = "check the credentials and the bucket's policy"
_FIXES: Final = {
    "RequestTimeTooSkewed": _CLOCK,
    "RequestExpired": _CLOCK,
    "NotImplemented": _UNKNOWN,
    "ExpiredToken": _TOKEN,
    "ExpiredTokenException": _TOKEN,
    "TokenRefreshRequired": _TOKEN,
    "InvalidToken": "check AWS_SESSION_TOKEN: it does not belong to the access key",
    "AuthorizationHeaderMalformed": _REGION,
    "PermanentRedirect": _REGION,
    "TemporaryRedirect": _REGION,
    "IllegalLocationConstraintException": _REGION,
    "IncorrectEndpoint": _REGION,
    "InvalidAccessKeyId": "check AWS_ACCESS_KEY_ID: the store does not know it",
    "SignatureDoesNotMatch": "check AWS_SECRET_ACCESS_KEY: it does not belong to the access key",
    "AccountProblem": "ask the account's owner: the store has suspended it",
    "NoSuchBucket": "create the bucket, or check its name",
    "InvalidBucketName": "check the bucket's name",
    "InvalidObjectState": "restore the object from its archive first",
    "MethodNotAllowed": "check the endpoint: it is not the store's API",
    "QuotaExceeded": _SPACE,
    "XMinioStorageFull": _SPACE,
    "SlowDown": _SLOW,
    "ServiceUnavailable": _SLOW,
    "TooManyRequests": _SLOW,
}
_STATUS_FIXES: Final = {
    301: _REGION,
    307: _REGION,
    400: "check the credentials, AWS_REGION and the endpoint",
    401: _POLICY,
    403: "check the credentials, the bucket's policy and this machine's clock",
    405: _FIXES["MethodNotAllowed"],
    429: _SLOW,
    409: _AGAIN,
    412: _AGAIN,
    500: _AGAIN,
    501: _UNKNOWN,
    502: _AGAIN,
    503: _SLOW,
    504: _AGAIN,
    507: _SPACE,
}
_NO_CREDENTIALS: Final = "set the store's credentials, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"


@dataclass(frozen=True, slots=True)
class Refusal:
    """`problem` has the store's code and message; `fix` is empty where nothing better is known."""

    problem: str
    fix: str


def refusal_of(error: BaseException) -> Refusal:
    """The meaning of an error of obstore."""
    text, _, debug = str(error).strip().partition(_DEBUG)
    status = _STATUS.search(text)
    if status is None:
        is_redirect = "redirect without LOCATION" in text
        return Refusal(_of_connection(text, debug) or type(error).__name__, _REGION if is_redirect else "")
    if any(f" {service}" in text for service in _OWN_SERVICES):
        return Refusal(
            f"no credentials were found ({status[1]} of the machine's own service)", _NO_CREDENTIALS
        )
    answer = text[status.end() :]
    code = _CODE.search(answer)
    said = _MESSAGE.search(answer) or _JSON_MESSAGE.search(answer)
    parts = [f"{status[1]} {code[1] if code else status[2].strip()}".strip()]
    parts += [one_line(html.unescape(said[1]), _MAX_CHARS)] if said else []
    return Refusal(": ".join(parts), _fix(int(status[1]), code[1] if code else "", answer))


def _fix(status: int, code: str, answer: str) -> str:
    fix = _FIXES.get(code, "")
    if code.startswith("KMS."):
        fix = "see that the credentials may use the key that encrypts the bucket"
    elif code and not fix and status in (401, 403):
        fix = _POLICY
    elif code and not fix and status < 500 and status not in (409, 412):
        fix = f"look up {code} in the store's documentation"
    fix = fix or _STATUS_FIXES.get(status, "")
    place = _PLACE.search(answer)
    return f"{fix} ({place[1]})" if fix == _REGION and place is not None else fix


def _of_connection(text: str, debug: str) -> str:
    """The end of the text, after what was requested, with the first cause."""
    line = text.split("\n", 1)[0]
    end = line.rpartition(" - ")[2].strip()
    causes = _CAUSE.findall(debug)
    cause = f" ({causes[-1]})" if causes and causes[-1] not in end else ""
    said = end + cause
    return said if len(said) <= _MAX_CHARS else f"{said[:_MAX_CHARS]}..."
