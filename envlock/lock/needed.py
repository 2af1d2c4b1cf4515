"""What of the store some lockfiles need."""

from collections.abc import Sequence

from envlock.digest import Digest, digest_of
from envlock.lockfile import RECIPE, ImageBase, Lockfile


def base_key(lock: Lockfile) -> Digest:
    """Return the digest of all that decides a Debian base's bytes: its key among derived artifacts."""
    return digest_of(
        {
            "recipe": RECIPE,
            "platform": lock.environment.platform,
            "epoch": lock.environment.epoch,
            "apt": [[deb.name, deb.version, deb.architecture, deb.sha256] for deb in lock.apt],
        }
    )


def needed(locks: Sequence[Lockfile]) -> tuple[frozenset[Digest], frozenset[Digest]]:
    """Return the blobs that `locks` need, and the keys of what is derived from them."""
    blobs: set[Digest] = set()
    keys: set[Digest] = set()
    for lock in locks:
        blobs.update(package.sha256 for package in lock.apt)
        blobs.update(package.sha256 for package in lock.python)
        blobs.update(held.sha256 for held in lock.files)
        keys.update({lock.inputs(), base_key(lock)})
        if lock.image is not None:
            blobs.update({lock.image.config, lock.image.manifest, *(layer.diff_id for layer in lock.image.layers)})
        if isinstance(lock.base, ImageBase):
            blobs.update({lock.base.digest, lock.base.config, *lock.base.diff_ids})
    keys.update(blobs)
    return frozenset(blobs), frozenset(keys)
