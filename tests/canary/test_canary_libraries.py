"""`envlock.canary.libraries`: who is loaded from where, and which of them decide."""

import sys
from pathlib import Path

from envlock.canary import libraries


def test_this_process_names_its_own_interpreter_and_c_library() -> None:
    """Read from the kernel, the libraries of this very process are there with build ids."""
    found = {item["name"]: item for item in libraries.read()}

    assert any(name.startswith(("libc.so", "libc-", "ld-musl")) for name in found)
    assert any(
        str(Path(item["path"]).parent).startswith(sys.base_prefix) or "python" in name for name, item in found.items()
    )


def test_a_library_that_is_gone_says_why(tmp_path: Path) -> None:
    """A deleted file is unreadable in words; it does not vanish from the list."""
    maps = tmp_path / "maps"
    maps.write_text("7f01-7f02 r-xp 00001000 08:01 1    /gone/libm.so.6\n")

    assert libraries.read(str(maps))[0]["build-id"].startswith("(unreadable: ")


def test_only_what_computes_decides() -> None:
    """Build ids of libraries that compute are settings; the others are only listed."""
    listed = [
        {"name": name, "build-id": "ab"} for name in ("libm.so.6", "libz.so.1", "libtorch_cpu.so", "libtorch_python.so")
    ]

    assert libraries.deciding(listed) == (("libm.so.6", "ab"), ("libtorch_cpu.so", "ab"))
