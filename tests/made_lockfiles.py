"""Any lockfile, for tests of what holds for all of them."""

from hypothesis import strategies as st

from envlock import lockfile
from envlock.digest import Digest
from envlock.facts import OUTCOMES, VALUE, absent, value
from envlock.lockfile import (
    AptIndex,
    DebianBase,
    DebPackage,
    Determinism,
    Environment,
    Golden,
    Image,
    ImageBase,
    Layer,
    LockedFile,
    Lockfile,
    PythonPackage,
    Rule,
    host_of,
)

digests = st.binary(min_size=32, max_size=32).map(lambda data: Digest.from_hex(data.hex()))
names = st.from_regex(r"[a-z0-9]([a-z0-9._-]{0,20}[a-z0-9])?", fullmatch=True)
words = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=30)
printable = words.filter(str.isprintable)
sizes = st.integers(min_value=1, max_value=2**62)
fact_values = st.one_of(
    st.one_of(words, st.integers(-(2**62), 2**62), st.booleans(), st.lists(words, max_size=3)).map(value),
    st.sampled_from([outcome for outcome in OUTCOMES if outcome != VALUE]).map(absent),
)
facts = st.dictionaries(names, fact_values, max_size=5)


def unique(items: st.SearchStrategy, key: str) -> st.SearchStrategy:
    """Return tuples of `items`, each name once, in the order of the file."""
    return st.lists(items, max_size=4, unique_by=lambda item: getattr(item, key)).map(
        lambda found: tuple(sorted(found, key=lambda item: getattr(item, key)))
    )


def pairs(values: st.SearchStrategy, keys: st.SearchStrategy = names) -> st.SearchStrategy:
    return st.dictionaries(keys, values, max_size=5).map(lambda found: tuple(sorted(found.items())))


debs = st.builds(
    DebPackage,
    name=names.filter(lambda text: text[-1] not in "._-"),
    version=st.from_regex(r"([0-9]:)?[0-9]{1,3}\.[0-9]{1,3}(-[0-9][a-z0-9+~]{0,5})?", fullmatch=True),
    architecture=st.sampled_from(["all", "amd64", "arm64"]),
    file=st.from_regex(r"pool/main/[a-z]/[a-z0-9+_~%-]{1,20}\.deb", fullmatch=True),
    size=sizes,
    sha256=digests,
)
wheels = st.builds(
    PythonPackage,
    name=names,
    version=st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){0,2}(\+cpu|\+cu12)?", fullmatch=True),
    index=names,
    file=st.from_regex(r"[a-z0-9][a-z0-9_]{0,19}-[0-9]\.[0-9](\+cpu)?-py3-none-any\.whl", fullmatch=True),
    size=sizes,
    sha256=digests,
)
held_files = st.builds(
    LockedFile,
    path=st.from_regex(r"(/[A-Za-z0-9_-]{1,8}){1,3}", fullmatch=True),
    source=st.from_regex(r"[A-Za-z0-9_-]{1,8}(/[a-z]{1,5}){0,2}", fullmatch=True),
    size=st.integers(0, 2**62),
    sha256=digests,
)
bases = st.one_of(
    st.builds(
        DebianBase,
        suite=st.sampled_from(["bookworm", "trixie", "sid"]),
        indexes=st.lists(
            st.builds(
                AptIndex,
                suite=st.sampled_from(["bookworm", "bookworm-security"]),
                components=st.lists(st.sampled_from(["main", "non-free"]), max_size=2).map(tuple),
                sha256=digests,
            ),
            max_size=2,
        ).map(tuple),
    ),
    st.builds(
        ImageBase,
        repository=st.sampled_from(["library/debian", "team/a-b_c"]),
        tag=st.sampled_from(["12", "3.11-slim"]),
        digest=digests,
        config=digests,
        diff_ids=st.lists(digests, max_size=3).map(tuple),
    ),
)


def _rule(key: str, rule: str, severity: str, unknown: str, reason: str, until: str) -> Rule:
    return Rule(
        key=key, rule=rule, severity=severity, unknown=unknown, reason=reason, until=until if reason.strip() else ""
    )


rules = st.builds(
    _rule,
    key=st.one_of(names, names.map(lambda text: f"gpu.*.{text}")),
    rule=words,
    severity=st.sampled_from(["error", "warning"]),
    unknown=st.sampled_from(["error", "allow"]),
    reason=words,
    until=st.just("") | st.dates().map(str),
)
goldens = st.builds(
    Golden,
    platform=pairs(words),
    suite=words,
    image=st.none() | digests,
    settings=pairs(words),
    outputs=st.dictionaries(words, words, min_size=1, max_size=5).map(lambda found: tuple(found.items())),
)
lockfiles = st.builds(
    Lockfile,
    environment=st.builds(
        Environment,
        name=names,
        platform=st.sampled_from(lockfile.PLATFORMS),
        python=st.sampled_from(["3.9", "3.11", "3.13"]),
        interpreter=st.just("/usr/bin/python3"),
        epoch=st.integers(0, 2**40),
        spec=digests,
        merged=st.booleans(),
    ),
    base=bases,
    apt=unique(debs, "name"),
    python=unique(wheels, "name"),
    files=unique(held_files, "path"),
    determinism=st.builds(
        Determinism,
        profile=words,
        threads=st.integers(1, 512),
        env=pairs(printable, st.from_regex(r"[A-Z_][A-Z0-9_]{0,10}", fullmatch=True)),
        torch=pairs(st.one_of(words, st.booleans(), st.integers(-(2**62), 2**62)), words),
    ),
    host=st.none() | st.builds(host_of, facts, st.lists(facts, max_size=3)),
    policy_profile=words,
    policy=unique(rules, "key"),
    image=st.none()
    | st.builds(
        Image,
        config=digests,
        manifest=digests,
        layers=st.lists(st.builds(Layer, owner=words, diff_id=digests, size=sizes), max_size=3).map(tuple),
    ),
    goldens=unique(goldens, "platform"),
)
