"""One file over HTTP into the store: patient with a server that is busy, deaf to one that lies."""

from pathlib import Path

import lock_sites
import pytest

from envlock.digest import sha256, sha256_file
from envlock.errors import IntegrityError, NetworkError
from envlock.lock.download import Downloader
from envlock.lock.indexes import Indexes
from envlock.store import Store

DATA = b"wheel" * 1000
WHAT = "app-1.0-py3-none-any.whl"


def indexes(logins: tuple[tuple[str, tuple[str, str]], ...] = ()) -> Indexes:
    return Indexes(arguments=(), environment=(), folders=(), certificates=None, logins=logins)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "a.whl").write_bytes(DATA)
    return folder


def bring(store: Store, address: str, pauses: list[float] | None = None, **more: object) -> None:
    held = pauses if pauses is not None else []
    Downloader(store, indexes(**more), held.append).bring(f"{address}/a.whl", sha256(DATA), len(DATA), WHAT)  # type: ignore[arg-type]


def test_a_busy_server_is_asked_again(root: Path, store: Store) -> None:
    """429, then 503, then the file: two pauses, each longer than the one before."""
    pauses: list[float] = []
    with lock_sites.served(root) as server:
        server.script["/a.whl"] = [429, 503]
        bring(store, server.address, pauses)

    assert store.holds(sha256(DATA))
    assert len(pauses) == 2
    assert pauses[0] < pauses[1]


def test_a_server_that_stays_busy_is_could_not_tell(root: Path, store: Store) -> None:
    """After four attempts the status is told, with the file's name and no address."""
    with lock_sites.served(root) as server:
        server.script["/a.whl"] = [503] * 9
        with pytest.raises(NetworkError) as caught:
            bring(store, server.address)
        assert len(server.asked_for("a.whl")) == 4

    assert str(caught.value) == f"{WHAT}: cannot be fetched: the server answers with status 503"
    assert "127.0.0.1" not in str(caught.value)


def test_a_file_that_is_not_there_is_not_asked_for_again(root: Path, store: Store) -> None:
    """404 will not change by waiting."""
    (root / "a.whl").unlink()
    with lock_sites.served(root) as server:
        with pytest.raises(NetworkError, match="status 404"):
            bring(store, server.address)
        assert len(server.asked_for("a.whl")) == 1


def test_a_transfer_that_breaks_off_is_tried_again_and_never_stored(root: Path, store: Store) -> None:
    """Half a file is no file."""
    with lock_sites.served(root) as server:
        server.cut.add("/a.whl")
        with pytest.raises(NetworkError, match=r"the connection broke off|no connection"):
            bring(store, server.address)
        assert len(server.asked_for("a.whl")) == 4

    assert not store.holds(sha256(DATA))
    assert list((store.root / "blobs").rglob(".envlock*")) == []


@pytest.mark.parametrize("data", [b"evil", DATA + b"x", DATA[:-1] + b"x"], ids=["short", "long", "other"])
def test_other_bytes_are_exit_4_at_once(root: Path, store: Store, data: bytes) -> None:
    """A lie is not a busy server: no second attempt, nothing stored."""
    with lock_sites.served(root) as server:
        server.replaced["/a.whl"] = data
        with pytest.raises(IntegrityError, match=WHAT):
            bring(store, server.address)
        assert len(server.asked_for("a.whl")) == 1

    assert not store.holds(sha256(data))


def test_bytes_are_asked_for_as_they_are(root: Path, store: Store) -> None:
    """Transport compression changes bytes: identity encoding is asked for."""
    with lock_sites.served(root) as server:
        bring(store, server.address)

        assert server.seen[0][1]["Accept-Encoding"] == "identity"


def test_a_login_goes_to_its_host_only(root: Path, store: Store) -> None:
    """The configured login opens the index; for another host nothing is sent."""
    with lock_sites.served(root) as server:
        server.login = ("me", "p@ss")
        with pytest.raises(NetworkError, match="status 401"):
            bring(store, server.address, logins=(("other.example", ("me", "p@ss")),))
        assert "Authorization" not in server.seen[-1][1]
        bring(store, server.address, logins=(("127.0.0.1", ("me", "p@ss")),))

    assert store.holds(sha256(DATA))


def test_no_server_is_could_not_tell(store: Store) -> None:
    """Nothing listens: in words, without the address."""
    with pytest.raises(NetworkError) as caught:
        bring(store, "http://me:word@127.0.0.1:9")

    assert str(caught.value) == f"{WHAT}: cannot be fetched: no connection"


def test_a_file_on_disk_is_taken_without_a_server(root: Path, store: Store) -> None:
    """A wheel folder's address; a file that is gone is named."""
    Downloader(store, indexes()).bring((root / "a.whl").as_uri(), sha256_file(root / "a.whl")[0], None, WHAT)

    assert store.holds(sha256(DATA))
    with pytest.raises(NetworkError, match="is no longer in the folder that offered it"):
        Downloader(store, indexes()).bring((root / "b.whl").as_uri(), sha256(b""), None, WHAT)
    with pytest.raises(NetworkError, match="addresses of the kind `ftp` are not known"):
        Downloader(store, indexes()).bring("ftp://h/a.whl", sha256(b""), None, WHAT)
