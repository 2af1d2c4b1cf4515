"""`envlock render` through the real program: a folder, whole, or a reason."""

from pathlib import Path

import pytest
from program import envlock

from envlock import lockfile

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lockfile whose files lie in a store beside it."""
    monkeypatch.syspath_prepend(str(ROOT / "tests/image"))
    from worlds import world

    store, lock, folder = world(tmp_path)
    monkeypatch.setenv("ENVLOCK_STORE", str(store.root))
    path = folder / "lockfiles/tiny.lock.toml"
    path.parent.mkdir()
    path.write_text(lockfile.render(lock))
    return path


def rendered(locked: Path, *arguments: str | Path) -> tuple[int, str, Path]:
    out = locked.parent.parent / "out"
    store = {"ENVLOCK_STORE": str(locked.parent.parent / "store")}
    ended = envlock("render", "-l", locked, "-o", out, *arguments, env=store)
    assert "Traceback" not in ended.err
    return ended.code, ended.err, out


def test_the_folder_is_complete(locked: Path) -> None:
    """Dockerfile, base, environment, files; and a second time the same."""
    code, _, out = rendered(locked)

    assert code == 0
    assert {path.name for path in out.iterdir()} == {".envlock-context", "Dockerfile", "base.tar", "files", "venv"}
    assert (out / "files/models/a.bin").read_bytes() == b"weights" * 1000
    before = {path: path.lstat().st_mtime for path in out.rglob("*")}
    assert rendered(locked)[0] == 0
    assert {path: path.lstat().st_mtime for path in out.rglob("*")} == before


def test_a_lockfile_of_format_version_1_gives_the_same_folder(locked: Path) -> None:
    """Migrating moves nothing that decides the image."""
    assert rendered(locked)[0] == 0
    out = locked.parent.parent / "out"
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    text = locked.read_text()
    assert "lock-version = 2" in text
    locked.write_text(text.replace("lock-version = 2", "lock-version = 1"))

    assert rendered(locked, "--force")[0] == 0
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_a_folder_of_somebody_else_is_refused(locked: Path) -> None:
    """Exit 2 and the way out."""
    out = locked.parent.parent / "out"
    out.mkdir()
    (out / "mine").write_text("x")
    code, err, _ = rendered(locked)

    assert code == 2
    assert "hint: name another folder, or `--force`" in err
    assert rendered(locked, "--force")[0] == 0


def test_a_template_needs_the_word_that_allows_it(locked: Path, tmp_path: Path) -> None:
    """It decides what the image holds."""
    template = tmp_path / "mine.j2"
    template.write_text("FROM scratch\nADD base.tar /\nCOPY venv/ {{ venv }}/\nUSER 0:0\n")
    code, err, _ = rendered(locked, "--template", template)
    assert code == 2
    assert "--allow-custom-template" in err

    code, _, out = rendered(locked, "--template", template, "--allow-custom-template")
    assert code == 0
    assert (out / "Dockerfile").read_text().endswith("USER 0:0\n")


def test_a_lockfile_with_a_newline_in_a_value_is_exit_2(locked: Path) -> None:
    """The very case of BentoML 5656, from the file on."""
    text = locked.read_text().replace('OMP_NUM_THREADS = "2"', 'OMP_NUM_THREADS = "2\\nRUN id"')
    locked.write_text(text)
    code, err, out = rendered(locked)

    assert code == 2
    assert "holds a control character, at `determinism.env.OMP_NUM_THREADS`" in err
    assert not out.exists()
