"""The interpreter, and the distribution behind `pynvml`."""

from pathlib import Path

import pytest
from recorded_host import RecordedHost

from envlock.facts import NOT_SUPPORTED, value
from envlock.probe import python

MODULE = "print('x')\n"


def install(folder: Path, distribution: str, size: int | None = None, file_name: str = "pynvml.py") -> Path:
    module = folder / file_name
    module.parent.mkdir(parents=True, exist_ok=True)
    module.write_text(MODULE)
    info = folder / f"{distribution}.dist-info"
    info.mkdir()
    length = len(MODULE) if size is None else size
    (info / "RECORD").write_text(f"other.py,,\n{file_name},sha256=x,{length}\n")
    return module


def binding(root: Path, module: Path) -> tuple[object, str]:
    seen = python.binding(RecordedHost(root / "host", {}, modules={"pynvml": str(module)}))
    return seen.value, seen.detail


def test_right_distribution(tmp_path: Path) -> None:
    """The maintained distribution is named with its version, and nothing is said against it."""
    assert binding(tmp_path, install(tmp_path / "site", "nvidia_ml_py-13.615.71")) == ("nvidia-ml-py 13.615.71", "")


@pytest.mark.parametrize(
    ("distribution", "file_name", "name"),
    [
        ("nvidia_ml_py3-7.352.0", "pynvml.py", "nvidia-ml-py3 7.352.0"),
        ("pynvml-11.5.3", "pynvml/__init__.py", "pynvml 11.5.3"),
        ("vendored-1.0", "pynvml.py", "vendored 1.0"),
    ],
)
def test_wrong_distribution_is_said(tmp_path: Path, distribution: str, file_name: str, name: str) -> None:
    """A module of the same name from another distribution is named, and warned of."""
    found, detail = binding(tmp_path, install(tmp_path / "site", distribution, file_name=file_name))

    assert found == name
    assert "does not come from `nvidia-ml-py`" in detail


def test_distribution_whose_file_was_overwritten_is_not_believed(tmp_path: Path) -> None:
    """Of two distributions that claim the file, the one whose recorded size fits counts."""
    install(tmp_path / "site", "nvidia_ml_py-13.615.71", size=99)
    module = install(tmp_path / "site", "nvidia_ml_py3-7.352.0")

    assert binding(tmp_path, module)[0] == "nvidia-ml-py3 7.352.0"


def test_file_that_was_changed_is_said(tmp_path: Path) -> None:
    """A module that no longer has its recorded size is not what was installed."""
    found, detail = binding(tmp_path, install(tmp_path / "site", "nvidia_ml_py-13.615.71", size=99))

    assert found == "changed after its installation by nvidia-ml-py 13.615.71"
    assert detail


def test_file_without_record_is_of_no_distribution(tmp_path: Path) -> None:
    """A module that nobody claims comes from no distribution."""
    (tmp_path / "pynvml.py").write_text(MODULE)

    assert binding(tmp_path, tmp_path / "pynvml.py")[0] == "no distribution that pip knows"


def test_no_binding(tmp_path: Path) -> None:
    """A bare interpreter has no binding."""
    assert python.binding(RecordedHost(tmp_path, {})).outcome == NOT_SUPPORTED


def test_interpreter(tmp_path: Path) -> None:
    """Implementation and version are those of the Python that probes."""
    found = python.read(RecordedHost(tmp_path, {}))

    assert (found["python.implementation"], found["python.version"]) == (value("cpython"), value("3.11.2"))
