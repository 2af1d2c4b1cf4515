"""A view as JUnit XML: one test case for each fact that was judged.

Passed: the same. Failure: drift. Error: it could not be told. Skipped: a warning, or what
the policy allows or waives, with the reason. One suite for each device, and one for each
group of host facts (`cpu`, `nvidia`, `system`); the verdict stands in its properties.
No clock, no host name: the same result is the same file. ASCII, so that it is well
formed in any locale.
"""

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator

from envlock.report.view import Item, Level, View
from envlock.report.words import folded

_Case = tuple[str, str, Item | None]  # key, device, what is to be said

_ELEMENTS = {Level.ERROR: "failure", Level.UNKNOWN: "error", Level.WARNING: "skipped", Level.NOTE: "skipped"}


def render(view: View) -> str:
    """Return the document; `Comparison.same` gives the cases that pass."""
    root = ElementTree.Element("testsuites", name=f"envlock {view.command}")
    total = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for group in folded(_cases(view), lambda case: _suite(case[0], case[1])):
        for word, number in _add_suite(root, view, group).items():
            total[word] += number
    for word, number in total.items():
        root.set(word, str(number))
    ElementTree.indent(root)
    body: bytes = ElementTree.tostring(root, encoding="us-ascii")
    text = body.decode("ascii")
    return text if text.startswith("<?xml") else f'<?xml version="1.0" encoding="us-ascii"?>\n{text}'


def _cases(view: View) -> Iterator[_Case]:
    for item in (*view.items, *view.excused):
        yield item.key, item.device, item
    for key, device in view.same:
        yield key, device, None
    if not (view.items or view.excused or view.same):
        # Nothing to name singly: the result itself is the case, so that a reader finds one.
        yield view.command, "", None


def _suite(key: str, device: str) -> str:
    return device or key.split(".")[0]


def _add_suite(root: ElementTree.Element, view: View, cases: list[_Case]) -> dict[str, int]:
    suite = ElementTree.SubElement(root, "testsuite", name=_suite(*cases[0][:2]), time="0")
    properties = ElementTree.SubElement(suite, "properties")
    for name, text in (
        ("verdict", view.verdict),
        ("exit-code", str(view.exit_code)),
        ("result", view.headline),
        ("lockfile", view.path),
        ("environment", view.environment),
        *(("note", note) for note in view.notes),
    ):
        ElementTree.SubElement(properties, "property", name=name, value=text)
    total = {"tests": len(cases), "failures": 0, "errors": 0, "skipped": 0}
    words = {"failure": "failures", "error": "errors", "skipped": "skipped"}
    for key, device, item in cases:
        place = f"envlock.{view.command}.{_suite(key, device)}"
        case = ElementTree.SubElement(suite, "testcase", classname=place, name=key, time="0")
        if item is not None:
            total[words[_add_outcome(case, item)]] += 1
    for word, number in total.items():
        suite.set(word, str(number))
    return total


def _add_outcome(case: ElementTree.Element, item: Item) -> str:
    name = _ELEMENTS[item.level]
    words = {Level.WARNING: "a warning by the policy: ", Level.NOTE: f"{item.kind}: "}
    outcome = ElementTree.SubElement(case, name, message=words.get(item.level, "") + item.message)
    if name != "skipped":
        outcome.set("type", item.kind)
    told = (("why", item.why), ("fix", item.fix), ("run", item.command), ("expected", item.expected),
            ("observed", item.observed))  # fmt: skip
    outcome.text = "\n".join(f"{word}: {text}" for word, text in told if text)
    return name
