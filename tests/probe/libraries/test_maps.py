"""`envlock.probe.libraries.maps`: which files a process executes."""

import os
from pathlib import Path

import pytest

from envlock.probe.libraries.maps import executable


def test_executable_files_are_taken_once() -> None:
    """Data mappings and anonymous memory are no libraries; a path with spaces is one path."""
    maps = (
        "7f00-7f01 r--p 00000000 08:01 1    /lib/a.so\n"
        "7f01-7f02 r-xp 00001000 08:01 1    /lib/a.so\n"
        "7f02-7f03 r-xp 00000000 08:01 2    /opt/with space/b.so\n"
        "7f03-7f04 r--p 00000000 08:01 3    /usr/lib/locale/C.utf8/LC_CTYPE\n"
        "7f04-7f05 r-xp 00000000 00:00 0    [vdso]\n"
        "7f05-7f06 rwxp 00000000 00:00 0 \n"
    )

    assert [item.path for item in executable(maps)] == ["/lib/a.so", "/opt/with space/b.so"]


def test_a_deleted_file_is_told_apart_from_the_one_that_took_its_name() -> None:
    """The kernel's mark is no part of the path; span and inode say which file it was."""
    maps = (
        "0000100000-7f0000002000 r-xp 00000000 fe:01 16   /lib/a.so (deleted)\n"
        "7f0000003000-7f0000004000 r-xp 00000000 fe:01 17   /lib/a.so\n"
    )
    new, old = executable(maps)

    assert (new.path, new.deleted, new.inode) == ("/lib/a.so", False, 17)
    assert (old.path, old.deleted, old.inode, old.span) == ("/lib/a.so", True, 16, "100000-7f0000002000")


def test_the_recorded_maps_are_read() -> None:
    """The recorded maps of two processes give their libraries; one of them is gone."""
    corpus = os.environ.get("ENVLOCK_CORPUS")
    if not corpus:
        pytest.skip("ENVLOCK_CORPUS is not set")
    folder = Path(corpus, "hosts", "cuda")

    assert len(executable((folder / "maps-two-cudnn.txt").read_text())) == 5
    deleted = executable((folder / "maps-deleted-lib.txt").read_text())
    assert [(Path(item.path).name, item.deleted) for item in deleted] == [
        ("libcudart.so.13", False),
        ("libcuda.so.570.148.08", True),
    ]


def test_lines_that_are_none_of_the_kernel_are_passed_over() -> None:
    """A line without six fields names no file."""
    assert executable("garbage\n\n7f00-7f01 r-xp\n") == []
