"""What went wrong between envlock and its engine, in words."""

import contextlib
import http.client
import json

from envlock.errors import EngineError, EnvlockError, IntegrityError
from envlock.image.endpoints import redacted


class EngineRefused(EngineError):
    """The engine answered, and the answer is an error: `status` is the HTTP status."""

    def __init__(self, message: str, status: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


# What Docker and Podman answer when a file of a layer is no longer the one that was loaded:
# both put archives together with vbatts/tar-split, whose words these are.
_ALTERED = "file integrity checksum failed"


def refused(what: str, status: int, body: bytes) -> EnvlockError:
    """Return the error for an answer that is one: `IntegrityError` where the engine's own bytes are altered."""
    said = refusal(status, body)
    if _ALTERED in said:
        hint = "the engine's store is damaged: remove the image there, then run `envlock build`"
        return IntegrityError(f"{what}: {said}", hint=hint)
    return EngineRefused(f"{what}: {said}", status)


def refusal(status: int, body: bytes) -> str:
    text = body[:4096].decode("utf-8", "replace").strip()
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(body)
        if isinstance(found, dict):
            text = str(found.get("message") or found.get("cause") or text)
    return f"the engine answered {status}{': ' if text else ''}{redacted(text).strip()}"


def in_words(error: BaseException) -> str | None:
    """Return what a connection error means, or None when `error` is none (a fault of ours)."""
    import requests
    import urllib3.exceptions
    from docker.errors import APIError, DockerException

    if isinstance(error, APIError):  # only `attach` is asked through the SDK
        said = str(error.explanation or "").encode()
        return refusal(error.status_code or 500, said)
    found = _first_os_error(error)
    if found is not None:
        known = {
            FileNotFoundError: "no such socket",
            PermissionError: "permission denied",
            ConnectionRefusedError: "connection refused",
            ConnectionResetError: "the engine cut the connection",
            BrokenPipeError: "the engine cut the connection",
            TimeoutError: "the engine did not answer in time",
        }
        return known.get(type(found)) or (found.strerror or str(found)).lower()
    if isinstance(error, (requests.Timeout, urllib3.exceptions.TimeoutError)):
        return "the engine did not answer in time"
    if isinstance(error, (requests.RequestException, urllib3.exceptions.HTTPError, http.client.HTTPException)):
        return f"the engine's answer broke off ({redacted(str(error))[:200]})"
    if isinstance(error, DockerException):
        return redacted(str(error))[:400]
    return None


def _first_os_error(error: BaseException) -> OSError | None:
    import requests

    todo: list[BaseException] = [error]
    seen: set[int] = set()
    while todo:
        one = todo.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        # requests' own exceptions are OSErrors without an errno: look inside them.
        if isinstance(one, OSError) and not isinstance(one, requests.RequestException):
            return one
        inner = [*one.args, getattr(one, "reason", None), one.__cause__, one.__context__]
        todo.extend(item for item in inner if isinstance(item, BaseException))
    return None
