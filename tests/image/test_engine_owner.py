"""Whose a container or a temporary image is, and whether its process is gone."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from fakes.daemon import FakeDaemon

from envlock.image import owner
from envlock.image.engine import connect


@pytest.fixture
def daemon() -> Iterator[FakeDaemon]:
    with FakeDaemon() as fake:
        yield fake


def gone() -> owner.Mark:
    """The mark of a process that was, in this very PID namespace."""
    mine = owner.own_mark()
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return owner.Mark(pid=process.pid, started=mine.started, place=mine.place)


def elsewhere() -> owner.Mark:
    mine = owner.own_mark()
    return owner.Mark(pid=mine.pid, started=mine.started, place="0" * 12)


def test_a_mark_is_read_back_as_it_was_written() -> None:
    """With and without the random end of a temporary image's tag."""
    mine = owner.own_mark()

    assert owner.parse(str(mine)) == mine
    assert owner.parse(owner.temporary_tag().split(":")[1]) == mine
    assert mine.pid == os.getpid()


@pytest.mark.parametrize(
    "text", ["", "p1", "p1-t2-short", "p1-t2-000000000000-00000000", "p1-t2-000000000000-00000000-x", "latest"]
)
def test_what_is_no_mark_is_nobodys(text: str) -> None:
    """What envlock did not mark is never touched."""
    assert owner.parse(text) is None


def test_a_living_process_is_told_from_a_gone_one_and_from_one_elsewhere() -> None:
    """A process id that is used again has another start time."""
    mine = owner.own_mark()
    reused = owner.Mark(pid=mine.pid, started=mine.started + 1, place=mine.place)

    assert owner.state(mine) == owner.ALIVE
    assert owner.state(gone()) == owner.GONE
    assert owner.state(reused) == owner.GONE
    assert owner.state(elsewhere()) == owner.UNKNOWN


def test_only_what_is_left_over_is_removed(daemon: FakeDaemon) -> None:
    """Gone here: removed. Alive, somebody else's, or from elsewhere and young: left alone."""
    now = int(time.time())
    marks = {
        "gone": (str(gone()), now),
        "alive": (str(owner.own_mark()), now - 10**7),
        "young": (str(elsewhere()), now),
        "old": (str(elsewhere()), now - 10**6),
        "strange": ("not a mark", now - 10**7),
    }
    daemon.on(
        "GET",
        "/containers/json",
        lambda request: request.json(
            [{"Id": name, "Created": at, "Labels": {owner.LABEL: mark}} for name, (mark, at) in marks.items()]
        ),
    )
    names = [
        f"{owner.TEMPORARY}:{mark}-{at:08x}-0000000{number}"
        for number, (mark, at) in enumerate(
            [(gone(), now), (owner.own_mark(), 0), (elsewhere(), now), (elsewhere(), now - 10**6)]
        )
    ]
    daemon.on("GET", "/images/json", lambda request: request.json([{"RepoTags": names}, {"RepoTags": None}]))
    daemon.on("DELETE", "/(containers|images)/.*", lambda request: request.raw(b"", 204))

    removed = connect(daemon.environ).reap()

    images = sorted((names[0], names[3]))
    assert removed == ("container gone", "container old", *(f"image {name}" for name in images))
    assert [request.path for request in daemon.seen if request.method == "DELETE"] == [
        "/containers/gone",
        "/containers/old",
        *(f"/images/{name}" for name in images),
    ]


def test_two_who_clear_up_at_once_do_not_disturb_each_other(daemon: FakeDaemon) -> None:
    """What the other one has removed, or is removing, is no error; nor is an image in use."""
    left = [{"Id": "one", "Created": 0, "Labels": {owner.LABEL: str(gone())}}]
    daemon.on("GET", "/containers/json", lambda request: request.json(left))
    daemon.on(
        "GET",
        "/images/json",
        lambda request: request.json([{"RepoTags": [f"{owner.TEMPORARY}:{gone()}-00000000-00000000"]}]),
    )
    busy = {"message": "removal of container one is already in progress"}
    for status in (404, 409):
        daemon.on("DELETE", "/.*", lambda request, status=status: request.json(busy, status))  # type: ignore[misc]

        connect(daemon.environ).reap()
