"""The canary's report as values: what came in a frame or lies in a file, checked.

Pure. The document is described in `docs/schema/canary-report.schema.json`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from envlock.canary.report import SCHEMA
from envlock.digest import digest_of
from envlock.errors import UsageError

_NAME = re.compile(r"(t[123])\.([a-z0-9_]+)\.([A-Za-z0-9_.-]+)(/solo)?")
_HEX = re.compile(r"([0-9a-f]{2})*")

KNOWN_ANSWERS = "t1"
"""The one line that a golden holds of T1, which needs none: which known answers there were."""

SOLO = "/solo"
OK = "ok"
UNAVAILABLE = "unavailable: "

CONTROLS = ("weight-bit", "wrong-integer")
"""What must fail in every run (`envlock.canary.suite.controls`): one that is not there did not fail."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """Raw elements of one output, `stride` elements apart, as little-endian bytes."""

    stride: int
    data: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """One output: `value` is a digest or a small text; `canonical` its digest with all NaNs made equal."""

    name: str
    value: str
    detail: str = ""
    dtype: str | None = None
    shape: tuple[int, ...] = ()
    sample: Sample | None = None
    canonical: str | None = None

    @property
    def tier(self) -> str:
        """`T1`, `T2` or `T3`."""
        return self.name[:2].upper()

    @property
    def answered(self) -> bool:
        """Whether the run could give it at all: the text of an exception is no output."""
        return not self.value.startswith(UNAVAILABLE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One output that a later run or process gave otherwise than the first one."""

    process: int
    run: int
    name: str
    value: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What one canary run saw. `failure` is empty when it ran; then `outputs` is not.
    Of a run that failed after torch was loaded, `settings` holds its version.

    `image` is the config digest of the image it ran in, None on the host; `blind` the
    controls that did not fail though they must; `asked` the torch switches asked for.
    """

    suite: str
    failure: str = ""
    hint: str | None = None
    inputs: str = ""
    backend: str = ""
    platform: tuple[tuple[str, str], ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    information: tuple[tuple[str, str], ...] = ()
    outputs: tuple[Output, ...] = ()
    differences: tuple[Difference, ...] = ()
    problems: tuple[str, ...] = ()
    not_in_force: tuple[str, ...] = ()
    changed_inputs: tuple[str, ...] = ()
    blind: tuple[str, ...] = ()
    flip: str | None = None
    image: str | None = None

    @property
    def suite_and_inputs(self) -> str:
        """The suite with the digest of its inputs: goldens of another one are not compared."""
        return f"{self.suite} {self.inputs}"


class _Reader:
    """One object of the document, with the key path in every error."""

    def __init__(self, data: Any, where: str, path: str) -> None:
        if not isinstance(data, dict):
            raise UsageError("unexpected type (expected object)", where=where, key=path or None)
        self.data = data
        self.where = where
        self.path = path

    def fail(self, message: str, key: str) -> UsageError:
        return UsageError(message, where=self.where, key=f"{self.path}.{key}" if self.path else key)

    def text(self, key: str, default: str | None = None) -> str:
        found = self.data.get(key, default)
        if not isinstance(found, str):
            raise self.fail("missing, or no string", key)
        return found

    def number(self, key: str) -> int:
        found = self.data.get(key)
        if type(found) is not int or found < 0:
            raise self.fail("missing, or no number", key)
        return found

    def texts(self, key: str) -> tuple[str, ...]:
        found = self.data.get(key)
        if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
            raise self.fail("missing, or no array of strings", key)
        return tuple(found)

    def pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        found = self.data.get(key)
        if not isinstance(found, dict) or not all(isinstance(item, str) for item in found.values()):
            raise self.fail("missing, or no object of strings", key)
        return tuple(sorted(found.items()))

    def items(self, key: str) -> list["_Reader"]:
        found = self.data.get(key)
        if not isinstance(found, list):
            raise self.fail("missing, or no array", key)
        return [_Reader(item, self.where, f"{key}[{index}]") for index, item in enumerate(found)]


def from_document(document: Mapping[str, Any] | Any, where: str) -> Report:
    """Return the report in a parsed JSON document; `UsageError` names the key that is wrong."""
    top = _Reader(document, where, "")
    if top.data.get("schema") != SCHEMA:
        raise UsageError(
            f"unexpected schema {top.data.get('schema')!r} (expected {SCHEMA!r})",
            where=where,
            key="schema",
            hint="write the file with `envlock canary run --format json -o FILE`",
        )
    outcome = top.text("outcome")
    if outcome == "failed":
        hint, torch = top.data.get("hint"), top.data.get("torch")
        return Report(
            suite=top.text("suite"),
            failure=top.text("failure") or "no reason given",
            hint=hint if isinstance(hint, str) else None,
            settings=(("torch.version", torch),) if isinstance(torch, str) else (),
        )
    if outcome != "ran":
        raise top.fail(f"unknown outcome {outcome!r} (expected `ran` or `failed`)", "outcome")
    outputs = tuple(_output(item) for item in top.items("outputs"))
    if not outputs or len({output.name for output in outputs}) != len(outputs):
        raise top.fail("is empty, or names one output twice", "outputs")
    request = _Reader(top.data.get("request"), where, "request")
    return Report(
        suite=top.text("suite"),
        inputs=top.text("inputs"),
        backend=request.text("backend"),
        platform=top.pairs("platform"),
        settings=top.pairs("settings"),
        information=top.pairs("information"),
        outputs=outputs,
        differences=tuple(_difference(item) for item in top.items("differences")),
        problems=(*top.texts("problems"), *_crash(top)),
        not_in_force=top.texts("not-in-force"),
        changed_inputs=top.texts("changed-inputs"),
        blind=_blind(top),
        flip=_flip(request),
        image=_image(top),
    )


def known_answers(report: Report) -> str:
    """Return which known answers of T1 `report` holds: their number, and the digest of their names."""
    names = sorted(output.name for output in report.outputs if output.tier == "T1")
    return f"{len(names)} known answers, names {digest_of(names)}"


def _flip(request: _Reader) -> str | None:
    if request.data.get("weight-bit-flip") is None:
        return None
    asked = _Reader(request.data["weight-bit-flip"], request.where, "request.weight-bit-flip")
    return f"{asked.text('tensor')} bit {asked.number('bit')}"


def _blind(top: _Reader) -> tuple[str, ...]:
    found = _Reader(top.data.get("controls"), top.where, "controls").data
    if not found:
        raise top.fail("is empty: a run without a control that must fail proves nothing", "controls")
    return tuple(sorted(name for name in {*CONTROLS, *found} if found.get(name) is not True))


def _image(top: _Reader) -> str | None:
    if top.data.get("container") is None:
        return None
    return _Reader(top.data["container"], top.where, "container").text("image")


def _crash(top: _Reader) -> tuple[str, ...]:
    """Return in words that the container did not end well, though it answered."""
    if top.data.get("container") is None:
        return ()
    status = _Reader(top.data["container"], top.where, "container").data.get("exit-status", 0)
    return () if status == 0 else (f"the container ended with status {status}",)


def _difference(item: _Reader) -> Difference:
    return Difference(
        process=item.number("process"), run=item.number("run"), name=item.text("name"), value=item.text("value")
    )


def _output(item: _Reader) -> Output:
    name = item.text("name")
    if not _NAME.fullmatch(name):
        raise item.fail(f"not the name of an output: {name!r}", "name")
    sample = None
    if item.data.get("sample") is not None:
        held = _Reader(item.data["sample"], item.where, f"{item.path}.sample")
        if not _HEX.fullmatch(held.text("hex")):
            raise held.fail("is not hex", "hex")
        sample = Sample(stride=held.number("stride"), data=bytes.fromhex(held.text("hex")))
    shape = item.data.get("shape", [])
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise item.fail("is no array of sizes", "shape")
    return Output(
        name=name,
        value=item.text("value"),
        detail=item.text("detail", ""),
        dtype=item.data.get("dtype") if isinstance(item.data.get("dtype"), str) else None,
        shape=tuple(shape),
        sample=sample,
        canonical=item.data.get("nan-canonical") if isinstance(item.data.get("nan-canonical"), str) else None,
    )


def operator_of(name: str) -> str:
    """Return the operator (T3), signature or case that an output's name ends in: `softmax`."""
    found = _NAME.fullmatch(name)
    if found is None:
        return name
    rest = found.group(3)
    return rest.split(".", 1)[1] if found.group(1) == "t3" and "." in rest else f"{found.group(2)}.{rest}"


def model_of(name: str) -> str:
    """Return the model of a T3 output: `encoder`."""
    found = _NAME.fullmatch(name)
    return found.group(2) if found is not None else ""
