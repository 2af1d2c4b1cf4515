"""One file over HTTP or from disk into the store: patient, and never telling where from.

Bytes count as they come over the wire (identity encoding): what is hashed is what is
locked. An address, a host name or a login never reaches an error.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from envlock import files
from envlock.digest import Digest
from envlock.errors import NetworkError
from envlock.lock.indexes import Indexes
from envlock.store import Store

if TYPE_CHECKING:
    import requests

_TIMEOUTS = (15, 60)  # seconds to connect, and between two reads
_PAUSES = (1.0, 3.0, 9.0)  # seconds before each further attempt
_PASSING = (408, 425, 429, 500, 502, 503, 504)


class Downloader:
    """Brings files into `store`, with the host's certificates, proxies and logins."""

    def __init__(self, store: Store, indexes: Indexes, pause: Callable[[float], None] = time.sleep) -> None:
        self._store = store
        self._indexes = indexes
        self._pause = pause
        self._held: requests.Session | None = None

    def bring(self, url: str, digest: Digest, size: int | None, what: str) -> None:
        """Fetch `url` into the store; `what` names it in errors.

        Raises `IntegrityError` when the bytes are others, `NetworkError` when they cannot be had.
        """
        parts = urlsplit(url)
        if parts.scheme == "file":
            path = Path(unquote(parts.path))
            try:
                with open(path, "rb") as stream:
                    self._store.add(stream, digest, what, size)
            except FileNotFoundError:
                raise NetworkError("is no longer in the folder that offered it", where=what) from None
            except OSError as error:
                raise files.storage_error(error, what) from error
            return
        if parts.scheme not in ("http", "https"):
            raise NetworkError(f"cannot be fetched: addresses of the kind `{parts.scheme}` are not known", where=what)
        self._over_http(url, digest, size, what)

    def _over_http(self, url: str, digest: Digest, size: int | None, what: str) -> None:
        import requests
        import urllib3

        for pause in (*_PAUSES, None):
            try:
                with self._session().get(
                    url, stream=True, timeout=_TIMEOUTS, headers={"Accept-Encoding": "identity"}
                ) as reply:
                    if reply.status_code == 200:
                        self._store.add(_Body(reply.raw), digest, what, size)
                        return
                    reason = f"the server answers with status {reply.status_code}"
                    wait = _retry_after(reply.headers.get("Retry-After"))
                    passing = reply.status_code in _PASSING
            except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
                reason, wait, passing = _kind(error), None, True
            if not passing or pause is None:
                raise NetworkError(
                    f"cannot be fetched: {reason}",
                    where=what,
                    hint="is the index of this host's pip or uv configuration reachable?",
                )
            self._pause(pause if wait is None else wait)

    def _session(self) -> "requests.Session":
        if self._held is None:
            import requests

            self._held = requests.Session()
            if self._indexes.certificates:
                self._held.verify = self._indexes.certificates
            logins = dict(self._indexes.logins)
            if logins:
                self._held.auth = _Logins(logins)
        return self._held


class _Body:
    """The body of an answer as it came, not decoded."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def read(self, size: int, /) -> bytes:
        data: bytes = self._raw.read(size, decode_content=False)
        return data


class _Logins:
    """Sends a login only to the host it was configured for."""

    def __init__(self, logins: dict[str, tuple[str, str]]) -> None:
        self._logins = logins

    def __call__(self, request: Any) -> Any:
        from requests.auth import HTTPBasicAuth

        login = self._logins.get(urlsplit(request.url).hostname or "")
        return HTTPBasicAuth(*login)(request) if login else request


def _retry_after(text: str | None) -> float | None:
    return min(float(text), 60.0) if text is not None and text.isdigit() else None


def _kind(error: Exception) -> str:
    """Return what went wrong in words: the message of `requests` itself holds the address."""
    import requests

    kinds = (
        (requests.exceptions.ProxyError, "the proxy refuses"),
        (requests.exceptions.SSLError, "its certificate cannot be verified"),
        (requests.exceptions.ConnectTimeout, "no connection within the time given"),
        (requests.exceptions.Timeout, "no answer within the time given"),
        (requests.exceptions.ConnectionError, "no connection"),
    )
    return next((words for kind, words in kinds if isinstance(error, kind)), "the connection broke off")
