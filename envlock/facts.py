"""Facts: what was observed about one host, and the document that carries it.

A fact is observed with an *outcome*: a value, or the reason why there is none. An
absence is never equal to a value, and never equal to nothing. The registry that says
what each fact means is `envlock.registry`; how facts are read is `envlock.probe`.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Any, Iterable, Mapping, Tuple, Union

from envlock.digest import Digest, digest_of
from envlock.errors import UsageError

SCHEMA = "envlock.facts/1"

VALUE = "value"
NOT_SUPPORTED = "not-supported"  # this hardware or kernel has no such thing
NOT_IN_DRIVER = "not-in-driver"  # this driver is too old to say
NO_PERMISSION = "no-permission"  # it is there, and this user may not read it
HIDDEN = "hidden"  # a hypervisor or container masks it
FAILED = "failed"  # it should have answered and did not
OUTCOMES = (VALUE, NOT_SUPPORTED, NOT_IN_DRIVER, NO_PERMISSION, HIDDEN, FAILED)

# What a fact can hold: a scalar, or a sequence of scalars in one fixed order.
Value = Union[str, int, bool, Tuple[str, ...], Tuple[int, ...]]

# Outcomes that leave open what the value is. `not-supported` is an answer: two hosts
# without a thing agree. The others are the lack of an answer: they agree with nothing.
UNANSWERED = frozenset((NOT_IN_DRIVER, NO_PERMISSION, HIDDEN, FAILED))


class Observed:
    """One fact as observed: an outcome, a value when there is one, and its source.

    `value` is a str, int, bool, or a tuple of str or int; `source` says where it was
    read (a path, a call, a command); `detail` says in words why there is no value.
    Equality is over outcome and value: where it was read is not what it is.
    """

    __slots__ = ("outcome", "value", "source", "detail")

    outcome: str
    value: Value | None
    source: str
    detail: str

    def __init__(
        self, outcome: str, value: Value | list[str] | list[int] | None = None, source: str = "", detail: str = ""
    ) -> None:
        if outcome not in OUTCOMES:
            raise ValueError("unknown outcome {!r}".format(outcome))
        if (outcome == VALUE) == (value is None):
            raise ValueError("outcome {!r} with value {!r}".format(outcome, value))
        object.__setattr__(self, "outcome", outcome)
        object.__setattr__(self, "value", tuple(value) if isinstance(value, list) else value)
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "detail", detail)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("Observed is immutable")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Observed):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, str, Value | None]:
        # The type is part of the value: True is not 1.
        return (self.outcome, type(self.value).__name__, self.value)

    def __repr__(self) -> str:
        return "Observed({!r}, {!r}, source={!r}, detail={!r})".format(
            self.outcome, self.value, self.source, self.detail
        )

    @property
    def has_value(self) -> bool:
        return self.outcome == VALUE

    def text(self) -> str:
        """Return the value for a person: lists joined by spaces, absences in words."""
        if self.outcome != VALUE:
            return "({})".format(self.outcome.replace("-", " "))
        if isinstance(self.value, bool):
            return "yes" if self.value else "no"
        if isinstance(self.value, tuple):
            return " ".join(str(item) for item in self.value)
        return str(self.value)

    def to_document(self) -> dict[str, Any]:
        document: dict[str, Any] = {"outcome": self.outcome}
        if self.outcome == VALUE:
            document["value"] = list(self.value) if isinstance(self.value, tuple) else self.value
        if self.source:
            document["source"] = self.source
        if self.detail:
            document["detail"] = self.detail
        return document


def value(found: Value | list[str] | list[int], source: str = "") -> Observed:
    """Return `found` as an observed value."""
    return Observed(VALUE, found, source)


def absent(outcome: str, source: str = "", detail: str = "") -> Observed:
    """Return an observed absence."""
    return Observed(outcome, None, source, detail)


class Device:
    """One device (a GPU): its kind, its place on this node, and its facts.

    `ident` orders devices within a node (the PCI bus id) and is never compared
    across nodes; `facts` maps fact keys such as `gpu.name` to `Observed`.
    """

    __slots__ = ("kind", "ident", "facts")

    def __init__(self, kind: str, ident: str, facts: Mapping[str, Observed]) -> None:
        self.kind = kind
        self.ident = ident
        self.facts = dict(facts)


def overlap(one: str, other: str) -> bool:
    """Return whether some key could start with both."""
    return one.startswith(other) or other.startswith(one)


class Facts:
    """All facts of one host: `host` maps keys to `Observed`, `devices` lists devices.

    `notes` tell a person what the probe saw beside the facts (a warning that a tool
    printed, two sources that disagree); nothing compares them. `only` are the prefixes of
    the facts that were looked for, empty when all were: what starts with none of them is
    not part of the document, and its lack says nothing about the host.
    """

    __slots__ = ("host", "devices", "notes", "only")

    def __init__(
        self,
        host: Mapping[str, Observed],
        devices: Iterable[Device] = (),
        notes: Iterable[str] = (),
        only: Iterable[str] = (),
    ) -> None:
        self.host = dict(host)
        self.devices = tuple(sorted(devices, key=lambda device: (device.kind, device.ident)))
        self.notes = tuple(notes)
        self.only = tuple(only)

    def covers(self, key: str) -> bool:
        """Return whether the fact `key`, or those that start with it, were looked for."""
        return not self.only or any(overlap(key, prefix) for prefix in self.only)

    def gpus(self) -> tuple[Device, ...]:
        """Return the GPUs of this host, by PCI bus id."""
        return tuple(device for device in self.devices if device.kind == "gpu")

    def to_document(self) -> dict[str, Any]:
        """Return the facts as their JSON document (`docs/schema/facts.schema.json`)."""
        noted = {name: list(held) for name, held in (("notes", self.notes), ("only", self.only)) if held}
        return {
            "schema": SCHEMA,
            **noted,
            "host": {key: self.host[key].to_document() for key in sorted(self.host)},
            "devices": [
                {
                    "kind": device.kind,
                    "id": device.ident,
                    "facts": {key: device.facts[key].to_document() for key in sorted(device.facts)},
                }
                for device in self.devices
            ],
        }

    def digest(self) -> Digest:
        """Return the digest of what was observed, without where it was read."""
        return digest_of(
            {
                "host": {key: _bare(seen) for key, seen in self.host.items()},
                "devices": [
                    {"kind": device.kind, "facts": {key: _bare(seen) for key, seen in device.facts.items()}}
                    for device in self.devices
                ],
            }
        )

    @classmethod
    def from_document(cls, document: Any, where: object) -> Facts:
        """Return the facts in a parsed JSON document; `UsageError` names the bad key."""
        if not isinstance(document, dict):
            raise UsageError("not a facts document: expected a JSON object", where=where)
        schema = document.get("schema")
        if schema != SCHEMA:
            raise UsageError(
                "unexpected schema {!r} (expected {!r})".format(schema, SCHEMA),
                where=where,
                key="schema",
                hint="write the file with `envlock probe --format json`",
            )
        host = _observed_map(document.get("host"), where, "host")
        devices = []
        idents = set()
        listed = document.get("devices", [])
        if not isinstance(listed, list):
            raise UsageError("unexpected type (expected array)", where=where, key="devices")
        for index, item in enumerate(listed):
            key = "devices[{}]".format(index)
            if not isinstance(item, dict) or not isinstance(item.get("kind"), str):
                raise UsageError("not a device", where=where, key=key)
            if item["kind"] != "gpu":
                # Nothing compares another kind: to pass it over would be to call it equal.
                raise UsageError(
                    "unknown kind of device {!r} (expected 'gpu')".format(item["kind"]), where=where, key=key
                )
            ident = item.get("id")
            if not isinstance(ident, str):
                raise UsageError("a device needs an `id`", where=where, key=key)
            if ident in idents:
                # One GPU described eight times is no node of eight.
                raise UsageError("two devices with the id {!r}".format(ident), where=where, key=key + ".id")
            idents.add(ident)
            devices.append(Device(item["kind"], ident, _observed_map(item.get("facts"), where, key + ".facts")))
        return cls(host, devices, _strings(document, "notes", where), _strings(document, "only", where))


def _strings(document: Mapping[str, Any], key: str, where: object) -> list[str]:
    found = document.get(key, [])
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise UsageError("unexpected type (expected array of strings)", where=where, key=key)
    return found


def _bare(seen: Observed) -> dict[str, Any]:
    document = seen.to_document()
    document.pop("source", None)
    document.pop("detail", None)
    return document


def _observed_map(table: Any, where: object, key: str) -> dict[str, Observed]:
    if not isinstance(table, dict):
        raise UsageError("unexpected type (expected object)", where=where, key=key)
    return {name: observed_from(item, where, "{}.{}".format(key, name)) for name, item in table.items()}


def observed_from(item: Any, where: object, key: str) -> Observed:
    """Return one observed fact from its JSON form; `UsageError` names what is wrong."""
    if not isinstance(item, dict):
        raise UsageError("unexpected type (expected object)", where=where, key=key)
    outcome = item.get("outcome")
    found = item.get("value")
    if outcome not in OUTCOMES:
        raise UsageError(
            "unknown outcome {!r} (expected one of {})".format(outcome, ", ".join(OUTCOMES)), where=where, key=key
        )
    if (outcome == VALUE) == (found is None):
        raise UsageError("outcome {!r} with value {!r}".format(outcome, found), where=where, key=key)
    if found is not None and not _is_fact_value(found):
        raise UsageError("not a fact value: {!r}".format(found), where=where, key=key)
    return Observed(outcome, found, str(item.get("source", "")), str(item.get("detail", "")))


def _is_fact_value(found: object) -> bool:
    if isinstance(found, list):
        return all(isinstance(item, (str, int)) and not isinstance(item, bool) for item in found)
    return isinstance(found, (str, int))
