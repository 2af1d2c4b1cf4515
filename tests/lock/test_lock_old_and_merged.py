"""Lockfiles of an older format, and those that a merge or a hand left, through the real program."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import samples
from lock_project import Site

from envlock import lockfile, lockstore
from envlock.lockfile import Image, Layer, Lockfile


def run(site: Site, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "envlock", *arguments],
        cwd=site.folder,
        env=site.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def path_of(site: Site) -> Path:
    return site.folder / "lockfiles" / "small.lock.toml"


def written(site: Site, lock: Lockfile, old: bool = False) -> None:
    """Write `lock` as this envlock does, or as one of format version 1 did."""
    text = lockfile.render(lock)
    if old:
        text = text.replace("lock-version = 2", "lock-version = 1").replace('profile = "bits"', 'profile = "default"')
        assert "\nmerged" not in text
    path_of(site).write_text(text)


def built(lock: Lockfile) -> Lockfile:
    """Return `lock` with an image, which nothing but its inputs may lose."""
    layers = (Layer(owner="system", diff_id=samples.sha("layer"), size=1024),)
    return lock.with_image(Image(config=samples.sha("config"), manifest=samples.sha("manifest"), layers=layers))


# ---- format version 1 ----------------------------------------------------------------------


def test_an_old_lockfile_is_fresh_and_the_next_lock_writes_it_in_today_s_format(site: Site) -> None:
    """Said on standard error, once; the image stays, for the inputs are the same."""
    site.spec()
    assert run(site, "lock").returncode == 0
    written(site, built(lockstore.read(path_of(site))), old=True)
    old = path_of(site).read_text()

    fresh = run(site, "lock", "--check")
    assert (fresh.returncode, fresh.stdout) == (0, "lockfiles/small.lock.toml is fresh\n")
    assert run(site, "lock", "--frozen").returncode == 0
    assert path_of(site).read_text() == old

    moved = run(site, "lock")
    again = run(site, "lock")
    assert "written in format version 2 (was 1)\n" in moved.stderr
    assert moved.stdout.startswith("wrote ")
    assert again.stdout.startswith("unchanged ")
    assert "format version" not in again.stderr
    assert lockstore.read(path_of(site)).image is not None
    assert path_of(site).read_text() == old.replace("lock-version = 1", "lock-version = 2").replace(
        'profile = "default"', 'profile = "bits"'
    )


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("check", "-l", "{lock}", "--facts", "{facts}"), 0),
        (("diff", "{lock}", "{lock}"), 0),
        (("lock", "--seed", "{lock}"), 0),
        (("canary", "run", "-l", "{lock}"), 3),
        (("build", "-l", "{lock}"), 3),
    ],
    ids=["check", "diff", "seed", "canary", "build"],
)
def test_an_old_lockfile_works_in_every_command(site: Site, arguments: tuple[str, ...], code: int) -> None:
    """Read like one of today (the two that need an engine get as far as looking for one); none rewrites it."""
    from envlock.facts import Device, Facts

    site.spec()
    assert run(site, "lock").returncode == 0
    held = lockstore.read(path_of(site))
    written(site, held, old=True)
    before = path_of(site).read_bytes()
    assert held.host is not None
    facts = Facts(
        dict(held.host.facts),
        [
            Device("gpu", f"0000:{index:02x}:00.0", dict(group.facts))
            for index, group in enumerate(group for group in held.host.gpus for _ in range(group.count))
        ],
    )
    (site.folder / "facts.json").write_text(json.dumps(facts.to_document()))
    site.environment["DOCKER_HOST"] = "unix:///nowhere/docker.sock"
    names = {"lock": path_of(site), "facts": site.folder / "facts.json"}
    ended = run(site, *(text.format(**names) for text in arguments))

    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stderr
    if "--seed" not in arguments:
        assert path_of(site).read_bytes() == before


# ---- merged ------------------------------------------------------------------------------------


def test_a_merged_lockfile_is_stale_until_it_is_locked_again(site: Site) -> None:
    """With the spec it was made from, and nothing new anywhere: what nobody resolved is resolved."""
    site.spec()
    assert run(site, "lock").returncode == 0
    before = path_of(site).read_text()
    held = lockstore.read(path_of(site))
    written(site, dataclasses.replace(held, environment=dataclasses.replace(held.environment, merged=True)))

    stale = run(site, "lock", "--check")
    assert stale.returncode == 1
    assert "  it was merged, and nobody has resolved its packages as one set since\n" in stale.stdout
    again = run(site, "lock")
    assert again.returncode == 0
    assert "resolving Python packages" in again.stderr
    assert path_of(site).read_text() == before
    assert run(site, "lock", "--check").returncode == 0


def test_packages_that_do_not_fit_together_are_put_right_by_the_next_lock(site: Site) -> None:
    """One side's app needs a newer lib than the other side's: the merge cannot know, `envlock lock` does."""
    old = site.lock(('["app"]', '["app", "lib==1.0"]'))
    site.index.wheel("app", "2.0", requires=("lib>=1.1",))
    site.spec()
    new = site.lock()
    assert {wheel.name: wheel.version for wheel in new.python} == {"app": "2.0", "lib": "1.1"}
    lib = next(wheel for wheel in old.python if wheel.name == "lib")
    mixed = dataclasses.replace(
        new,
        environment=dataclasses.replace(new.environment, merged=True),
        python=tuple(lib if wheel.name == "lib" else wheel for wheel in new.python),
    )
    path_of(site).parent.mkdir()
    written(site, mixed)
    ended = run(site, "lock")

    assert ended.returncode == 0, ended.stderr
    assert "python lib 1.0 -> 1.1" in ended.stderr
    assert {wheel.name: wheel.version for wheel in lockstore.read(path_of(site)).python} == {"app": "2.0", "lib": "1.1"}


def test_what_a_hand_or_git_s_own_merge_left_is_put_right_by_the_next_lock(site: Site) -> None:
    """The hint is true: a lockfile that no longer fits its inputs is refused, and `envlock lock` writes it again."""
    site.spec()
    assert run(site, "lock").returncode == 0
    before = path_of(site).read_text()
    held = lockstore.read(path_of(site))
    lib = next(wheel for wheel in held.python if wheel.name == "lib")
    written(site, built(held))
    path_of(site).write_text(path_of(site).read_text().replace(str(lib.sha256), str(samples.sha("evil"))))

    refused = run(site, "lock", "--check")
    assert refused.returncode == 2
    assert "run `envlock lock` to write it again" in refused.stderr
    ended = run(site, "lock")
    assert ended.returncode == 0, ended.stderr
    assert "lockfiles/small.lock.toml was merged or edited by hand: resolving all of it" in ended.stderr
    assert path_of(site).read_text() == before


def test_two_branches_a_conflict_and_the_way_out(site: Site) -> None:
    """Both sides moved one package: marked, settled by hand, locked, fresh."""
    site.index.wheel("lib", "1.2")
    base, ours, theirs = (site.lock(('["app"]', f'["app", "lib=={version}"]')) for version in ("1.0", "1.1", "1.2"))
    path_of(site).parent.mkdir()
    paths = [site.folder / name for name in ("base", "ours", "theirs")]
    for path, lock in zip(paths, (base, ours, theirs), strict=True):
        path.write_text(lockfile.render(lock))
    merged = run(site, "lock", "--merge", *map(str, paths))
    assert merged.returncode == 1
    assert "conflict: python lib: base 1.0, ours 1.1, theirs 1.2\n" in merged.stderr
    assert "the spec was changed on both sides" in merged.stderr

    site.spec(('["app"]', '["app", "lib==1.2"]'))
    text = paths[1].read_text()
    start, middle, end = (text.index(mark) for mark in ("<<<<<<< ours\n", "=======\n", ">>>>>>> theirs\n"))
    path_of(site).write_text(text)
    assert run(site, "lock").returncode == 2  # not while it is marked
    path_of(site).write_text(text[:start] + text[middle + 8 : end] + text[end + 15 :])
    assert run(site, "lock").returncode == 0
    assert run(site, "lock", "--check").returncode == 0
    assert lockstore.read(path_of(site)).python == theirs.python
