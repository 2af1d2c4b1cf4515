"""Requests to a container engine, each with a deadline that holds.

The docker SDK brings the connection (unix socket, TLS, ssh); the requests are made
here, because a read timeout of the SDK is one per packet: an engine that sends a byte a
second would never be given up. Each request runs in a thread of its own, and its answer
comes through a bounded queue; past the deadline the thread is cut off and left behind.
Whatever goes wrong is an `EngineError` in words.
"""

import contextlib
import json
import queue
import socket
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, Protocol

from envlock.errors import EngineError, EnvlockError
from envlock.image.endpoints import Endpoint, redacted
from envlock.image.failures import in_words, refused

CHUNK = 1 << 20
_LANE = 4  # chunks in flight: bounds memory when the reader is slower than the engine
_MAX_ANSWER = 64 << 20
_MAX_LINE = 4 << 20


class Readable(Protocol):
    """What has `read(size)`."""

    def read(self, size: int = ..., /) -> bytes: ...


Upload = Readable | Iterable[bytes]


class Transport:
    """One engine's address and how to ask it."""

    def __init__(self, client: Any, endpoint: Endpoint) -> None:
        self.client = client
        self.endpoint = endpoint
        weakref.finalize(self, client.close)  # connections that are kept for the next request

    def call(
        self,
        what: str,
        method: str,
        path: str,
        *,
        deadline: float,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        versioned: bool = True,
    ) -> Any:
        """Ask once, and return the answer's JSON (None when it is empty).

        `what` begins the error's sentence ("cannot inspect image x"), `deadline` is in
        seconds from now. Raises `EngineRefused` for an error the engine answered with,
        `EngineError` for everything else.
        """

        def work(running: "_Running") -> None:
            headers = {} if body is None else {"Content-Type": "application/json"}
            data = None if body is None else json.dumps(body).encode()
            with running.send(self, what, method, path, params, data, headers, versioned) as response:
                running.put(_read_all(response, what))

        answer = b"".join(_Running(what, deadline).results(work))
        if not answer.strip():
            return None
        try:
            return json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise EngineError(f"{what}: the engine's answer is not JSON") from error

    def stream(
        self,
        what: str,
        method: str,
        path: str,
        *,
        deadline: float,
        params: Mapping[str, Any] | None = None,
        upload: Upload | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Generator[bytes, None, None]:
        """Ask, sending `upload` as a tar archive, and return the answer chunk by chunk as it comes."""

        def work(running: "_Running") -> None:
            kind = {} if upload is None else {"Content-Type": "application/x-tar"}
            data = None if upload is None else running.watched(upload)
            with running.send(self, what, method, path, params, data, {**kind, **(headers or {})}, True) as response:
                for chunk in response.raw.stream(CHUNK, decode_content=False):
                    running.put(chunk)

        return _Running(what, deadline).results(work)

    def attach(self, what: str, ident: str, *, deadline: float) -> "Attached":
        """Attach to a created container's standard streams, and return the open connection."""

        def work(running: "_Running") -> None:
            params = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            running.put(self.client.attach_socket(ident, params=params))

        (connection,) = _Running(what, deadline).results(work)
        return Attached(connection, what)

    def messages(
        self,
        what: str,
        method: str,
        path: str,
        *,
        deadline: float,
        params: Mapping[str, Any] | None = None,
        upload: Upload | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Ask, and return the progress messages (JSON objects, one a line) as they come.

        Build, load, pull and push answer 200 and put their errors into this stream
        (docker-py#2171): one with `error` or `errorDetail` is raised as `EngineError`.
        """
        chunks = self.stream(what, method, path, deadline=deadline, params=params, upload=upload, headers=headers)
        for line in _lines(chunks, what):
            try:
                message = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise EngineError(f"{what}: the engine sent something that is not JSON") from error
            if not isinstance(message, dict):
                raise EngineError(f"{what}: the engine sent something that is not a message")
            failed = message.get("error") or message.get("errorDetail")
            if failed:
                text = failed.get("message") if isinstance(failed, dict) else failed
                raise EngineError(f"{what}: {redacted(str(text or failed)).strip()}")
            yield message


class Attached:
    """A connection to a container's standard streams; bytes go both ways."""

    def __init__(self, connection: Any, what: str) -> None:
        self._connection = connection  # kept: its response closes the socket when it is collected
        self._socket = getattr(connection, "_sock", connection)
        self._what = what

    def send(self, data: bytes, seconds: float) -> None:
        """Send all of `data`; `EngineError` when that takes longer than `seconds`."""
        try:
            self._socket.settimeout(seconds)
            self._socket.sendall(data)
        except (OSError, ValueError) as error:
            raise EngineError(f"{self._what}: {in_words(error) or 'the connection is closed'}") from error

    def receive(self, seconds: float) -> bytes | None:
        """Return the next bytes, none at the end, and None when nothing came within `seconds`."""
        try:
            self._socket.settimeout(max(0.01, seconds))
            found: bytes = self._socket.recv(1 << 18)
        except TimeoutError:
            return None
        except (OSError, ValueError) as error:  # closed by another thread, it is a ValueError
            raise EngineError(f"{self._what}: {in_words(error) or 'the connection is closed'}") from error
        return found

    def close(self) -> None:
        """Close the connection; the container is not ended by that."""
        for item in (getattr(self._connection, "_response", None), self._connection, self._socket):
            if item is not None:
                with contextlib.suppress(OSError, ValueError):
                    item.close()


class _Running:
    """One request in its thread: what it found comes through `lane`."""

    def __init__(self, what: str, deadline: float) -> None:
        self.what = what
        self.seconds = deadline
        self.end = time.monotonic() + deadline
        self.lane: queue.Queue[tuple[str, Any]] = queue.Queue(_LANE)
        self.stopped = threading.Event()
        self.response: Any = None
        self.broken_upload: BaseException | None = None

    def results(self, work: Callable[["_Running"], None]) -> Generator[Any, None, None]:
        """Run `work` and give what it puts, until it ends, fails, or the deadline passes."""
        threading.Thread(target=self._body, args=(work,), daemon=True, name="envlock-engine").start()
        try:
            while True:
                try:
                    kind, item = self.lane.get(timeout=max(0.0, self.end - time.monotonic()))
                except queue.Empty:
                    raise EngineError(f"{self.what}: the engine did not finish within {self.seconds:g} s") from None
                if kind == "failed":
                    raise item
                if kind == "end":
                    return
                yield item
        finally:
            self._stop()

    def _body(self, work: Callable[["_Running"], None]) -> None:
        try:
            work(self)
            self._hand("end", None)
        except BaseException as error:
            self._hand("failed", self._in_words(error))

    def _in_words(self, error: BaseException) -> BaseException:
        if self.broken_upload is not None:
            return self.broken_upload
        if isinstance(error, EnvlockError):
            return error
        text = in_words(error)
        return error if text is None else EngineError(f"{self.what}: {text}")

    def _hand(self, kind: str, item: Any) -> None:
        while not self.stopped.is_set():
            with contextlib.suppress(queue.Full):
                self.lane.put((kind, item), timeout=0.5)
                return

    def put(self, chunk: Any) -> None:
        self._hand("chunk", chunk)
        if self.stopped.is_set():
            raise EngineError(f"{self.what}: given up")

    def _stop(self) -> None:
        self.stopped.set()
        # Wakes a thread that waits for the engine; urllib3 < 2.3 has no such call, and there
        # the thread ends with the socket's own timeout.
        shutdown = getattr(getattr(self.response, "raw", None), "shutdown", None)
        if shutdown is not None:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                shutdown()

    def send(
        self,
        transport: Transport,
        what: str,
        method: str,
        path: str,
        params: Mapping[str, Any] | None,
        data: Any,
        headers: Mapping[str, str],
        versioned: bool,
    ) -> Any:
        """Return the open response of a request, or raise `EngineRefused` for an error status."""
        _check_socket(transport.endpoint)
        client = transport.client
        prefix = f"/v{client.api_version}" if versioned else ""
        response = client.request(
            method,
            f"{client.base_url}{prefix}{path}",
            params=params,
            data=data,
            # Else the archive endpoint sends gzip, and a stream's length and pace are the compressor's.
            headers={**headers, "Accept-Encoding": "identity"},
            stream=True,
            timeout=max(0.1, self.end - time.monotonic()),
        )
        self.response = response
        if response.status_code >= 400:
            with response:
                raise refused(what, response.status_code, _read_all(response, what))
        return response

    def watched(self, upload: Upload) -> Iterator[bytes]:
        """Give `upload` in chunks; remember what broke in it, so that it is not blamed on the engine."""
        try:
            if hasattr(upload, "read"):
                while chunk := upload.read(CHUNK):
                    yield self._checked(chunk)
            else:
                for chunk in upload:
                    if chunk:
                        yield self._checked(chunk)
        except BaseException as error:
            self.broken_upload = error if not isinstance(error, GeneratorExit) else None
            raise

    def _checked(self, chunk: bytes) -> bytes:
        if self.stopped.is_set():
            raise EngineError(f"{self.what}: given up")
        return chunk


def _check_socket(endpoint: Endpoint) -> None:
    """Raise `OSError` when nothing listens; docker-py would leave the socket of such a try open."""
    if endpoint.kind == "unix":
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(5.0)
            probe.connect(endpoint.url.removeprefix("unix://"))


def _read_all(response: Any, what: str) -> bytes:
    parts: list[bytes] = []
    length = 0
    for chunk in response.raw.stream(CHUNK, decode_content=False):
        parts.append(chunk)
        length += len(chunk)
        if length > _MAX_ANSWER:
            raise EngineError(f"{what}: the engine's answer is larger than {_MAX_ANSWER} bytes")
    return b"".join(parts)


def _lines(chunks: Iterator[bytes], what: str) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line for line in whole if line.strip())
        if len(rest) > _MAX_LINE:
            raise EngineError(f"{what}: the engine sent a line longer than {_MAX_LINE} bytes")
    if rest.strip():
        yield rest
