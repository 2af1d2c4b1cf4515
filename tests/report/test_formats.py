"""Each format, read by someone else's reader; and any text at all stays data in it."""

import dataclasses
import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import junitparser
import pytest
from hypothesis import given, settings
from made_views import CHANGED, ERRORS, UNKNOWN, VIEWS, every_view, view_of
from markdown_it import MarkdownIt
from prometheus_client.parser import text_string_to_metric_families

from envlock.drift import Comparison
from envlock.report import formats, markdown
from envlock.report.view import Level, View, alike

DATA = Path(__file__).resolve().parents[1] / "data"
SARIF = jsonschema.Draft4Validator(json.loads((DATA / "sarif-schema-2.1.0.json").read_text()))

# The fields that GitLab documents, and the severities that it knows.
GITLAB = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["description", "check_name", "fingerprint", "severity", "location"],
        "properties": {
            "description": {"type": "string", "minLength": 1},
            "check_name": {"type": "string", "minLength": 1},
            "fingerprint": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
            "severity": {"enum": ["info", "minor", "major", "critical", "blocker"]},
            "location": {
                "type": "object",
                "required": ["path", "lines"],
                "properties": {
                    "path": {"type": "string", "minLength": 1, "pattern": "^[^/.]"},
                    "lines": {"properties": {"begin": {"type": "integer", "minimum": 1}}, "required": ["begin"]},
                },
            },
        },
    },
}

VIEWS_BY_NAME = every_view()
NAMES = pytest.mark.parametrize("name", VIEWS_BY_NAME)


# ---- junit -----------------------------------------------------------------------------------


def junit(view: View) -> junitparser.JUnitXml:
    return junitparser.JUnitXml.fromstring(formats.render(view, "junit").encode())


@NAMES
def test_junit_fails_exactly_when_the_exit_code_is_not_0(name: str) -> None:
    """A reader of the file alone comes to the same answer; there is always a case to read."""
    view = VIEWS_BY_NAME[name]
    read = junit(view)
    assert (read.failures + read.errors > 0) == (view.exit_code != 0)
    assert read.tests >= 1


def test_junit_has_one_case_for_each_fact() -> None:
    """Passed, failed, could not be told, warned, allowed and waived are told apart, by device."""
    outcomes = {}
    for suite in junit(VIEWS_BY_NAME["drift"]):
        for case in suite:
            outcomes[suite.name, case.name] = [(type(each).__name__, each.message) for each in case.result]
    assert outcomes == {
        ("0000:03:00.0", "gpu.vbios"): [("Failure", "gpu.vbios on 0000:03:00.0: 96.00.5E.00.01 → 96.00.A5.00.01")],
        ("0000:03:00.0", "gpu.power_limit"): [
            (
                "Skipped",
                "waived: gpu.power_limit on 0000:03:00.0: 700000 mW → 650000 mW (until 2026-12-31, ticket 4711)",
            )
        ],
        ("0000:03:00.0", "gpu.name"): [],
        ("0000:05:00.0", "gpu.ecc"): [
            ("Error", "could not tell: gpu.ecc on 0000:05:00.0: yes → (failed) (GPU is lost)")
        ],
        ("nvidia", "nvidia.driver"): [("Skipped", "a warning by the policy: nvidia.driver: 535.161.08 → 550.120")],
        ("cpu", "cpu.microcode"): [("Skipped", "allowed: cpu.microcode: (hidden) → (hidden) (hidden when locked)")],
        ("cpu", "cpu.model"): [],
    }


def test_junit_counts_add_up() -> None:
    """The numbers of the whole are those of its suites, and those of the cases."""
    read = junit(VIEWS_BY_NAME["drift"])
    suites = list(read)
    for word in ("tests", "failures", "errors", "skipped"):
        assert getattr(read, word) == sum(getattr(suite, word) for suite in suites)
    assert read.tests == sum(len(list(suite)) for suite in suites) == 7
    assert {prop.name: prop.value for prop in suites[0].properties()}["verdict"] == "drift"


@given(VIEWS)
def test_junit_is_well_formed_whatever_it_holds(view: View) -> None:
    """A reader gets back what the view says, character for character."""
    read = junit(view)
    names = sorted(case.name for suite in read for case in suite)
    items = (*view.items, *view.excused)
    expected = sorted([item.key for item in items] + [key for key, _ in view.same])
    assert names == (expected or ["check"])
    messages = {each.message for suite in read for case in suite for each in case.result}
    assert all(any(item.message in message for message in messages) for item in items)


# ---- sarif -----------------------------------------------------------------------------------


def sarif(view: View) -> Any:
    document = json.loads(formats.render(view, "sarif"))
    SARIF.validate(document)
    return document["runs"][0]


@NAMES
def test_sarif_is_valid_and_carries_the_exit_code(name: str) -> None:
    """By the official schema; an open result of the level `error` stands for each exit code but 0."""
    view = VIEWS_BY_NAME[name]
    run = sarif(view)
    assert run["invocations"][0]["exitCode"] == view.exit_code
    assert run["invocations"][0]["executionSuccessful"] is not view.failed
    open_errors = [each for each in run["results"] if each["level"] == "error" and "suppressions" not in each]
    assert bool(open_errors) == (view.exit_code != 0)


def test_sarif_points_into_the_lockfile() -> None:
    """Each result names its rule, the line of the fact, and the device."""
    run = sarif(VIEWS_BY_NAME["drift"])
    result = run["results"][0]
    rule = run["tool"]["driver"]["rules"][result["ruleIndex"]]
    assert (rule["id"], rule["fullDescription"]["text"]) == ("gpu.vbios", "firmware of the board")
    assert rule["help"]["text"] == "flash the `locked` one"
    place = result["locations"][0]
    assert place["physicalLocation"]["artifactLocation"] == {
        "uri": "lockfiles/sample.lock.toml", "uriBaseId": "%SRCROOT%",
    }  # fmt: skip
    assert place["physicalLocation"]["region"] == {"startLine": 17}
    assert place["logicalLocations"] == [{"name": "0000:03:00.0", "kind": "resource"}]
    assert "nvidia-smi -i 0000:03:00.0 -pl 650" in result["message"]["text"]


def test_sarif_suppresses_what_is_waived() -> None:
    """With the reason and the last day."""
    waived = [each for each in sarif(VIEWS_BY_NAME["drift"])["results"] if each["ruleId"] == "gpu.power_limit"]
    assert waived[0]["suppressions"] == [
        {"kind": "external", "status": "accepted", "justification": "until 2026-12-31, ticket 4711"}
    ]


def test_a_result_has_a_place_even_where_no_file_was_named() -> None:
    """GitHub refuses a result without one, and a failure must be shown."""
    (result,) = sarif(dataclasses.replace(VIEWS_BY_NAME["usage"], path=""))["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "envlock.toml"


def test_a_path_with_strange_letters_is_a_uri() -> None:
    """Percent-encoded; an absolute path is a file URI."""
    strange = dataclasses.replace(VIEWS_BY_NAME["drift"], path="a b/ü#?.toml")
    artifact = sarif(strange)["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert artifact["uri"] == "a%20b/%C3%BC%23%3F.toml"
    absolute = dataclasses.replace(strange, path="/etc/envlock/a.toml")
    artifact = sarif(absolute)["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert artifact == {"uri": "file:///etc/envlock/a.toml"}


@given(VIEWS)
def test_sarif_is_valid_whatever_it_holds(view: View) -> None:
    """And no text of it is a placeholder or a link."""
    run = sarif(view)
    assert len(run["results"]) == len(view.items) + len(view.excused)
    for result in run["results"]:
        text = result["message"]["text"]
        assert re.search(r"(?<!\\)\[[^\]]*(?<!\\)\]\(", text) is None
        assert re.sub(r"\{\{|\}\}", "", text).count("{") == 0


# ---- fingerprints ----------------------------------------------------------------------------


def test_a_fingerprint_outlives_a_value_and_a_line() -> None:
    """The same fact with yet another value is the same problem; another device is another one."""

    def mark(**changed: Any) -> str:
        view = view_of(Comparison(drifts=(dataclasses.replace(CHANGED, **changed),)))
        (issue,) = json.loads(formats.render(view, "gitlab"))
        assert sarif(view)["results"][0]["partialFingerprints"]["envlock/v1"] == issue["fingerprint"]
        return str(issue["fingerprint"])

    assert mark() == mark(observed="other", expected="96", why="", command="")
    assert mark() != mark(device="0000:04:00.0")
    assert mark() != mark(key="gpu.ecc")


def test_no_two_items_share_a_fingerprint() -> None:
    """GitLab shows only the first of equal ones."""
    issues = json.loads(formats.render(view_of(Comparison(drifts=(CHANGED,) * 3)), "gitlab"))
    assert len({issue["fingerprint"] for issue in issues}) == 3


# ---- gitlab ----------------------------------------------------------------------------------


@NAMES
def test_gitlab_is_empty_only_for_a_match(name: str) -> None:
    """A failure is an issue too: an empty report would close every open one."""
    view = VIEWS_BY_NAME[name]
    issues = json.loads(formats.render(view, "gitlab"))
    jsonschema.validate(issues, GITLAB)
    serious = [issue for issue in issues if issue["severity"] in ("blocker", "critical", "major")]
    assert bool(serious) == (view.exit_code != 0)


@given(VIEWS)
def test_gitlab_is_json_whatever_it_holds(view: View) -> None:
    """One issue for each item, its text whole."""
    issues = json.loads(formats.render(view, "gitlab"))
    assert len(issues) == len(view.items)
    assert all(item.message in issue["description"] for item, issue in zip(view.items, issues, strict=True))


# ---- github ----------------------------------------------------------------------------------

# As the runner reads it: `::NAME KEY=VALUE,KEY=VALUE::MESSAGE` on a line of its own.
COMMAND = re.compile(r"::(?P<name>[a-z-]+)(?: (?P<properties>.*?))?::(?P<message>.*)")


def commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    """Return what the runner makes of `text`, in which every line must be a command."""
    found = []
    for line in text.removesuffix("\n").split("\n"):
        match = COMMAND.fullmatch(line)
        assert match, line
        properties = dict(each.split("=", 1) for each in match["properties"].split(","))
        found.append(
            (match["name"], {key: unescaped(each) for key, each in properties.items()}, unescaped(match["message"]))
        )
    return found


def unescaped(text: str) -> str:
    for code, letter in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
        text = text.replace(code, letter)
    return text


@NAMES
def test_github_says_error_exactly_when_the_exit_code_is_not_0(name: str) -> None:
    """The last command is the verdict."""
    view = VIEWS_BY_NAME[name]
    found = commands(formats.render(view, "github"))
    assert (found[-1][0] == "error") == (view.exit_code != 0)
    assert found[-1][1]["title"] == f"envlock check: {view.verdict}"
    assert any(each[0] == "error" for each in found) == (view.exit_code != 0)


def test_github_annotates_the_line_of_the_fact() -> None:
    """File, line, title, and below the message why, and what to run."""
    found = commands(formats.render(VIEWS_BY_NAME["drift"], "github"))
    name, properties, message = found[1]
    assert found[0] == ("notice", {"title": "envlock check: note"}, "clocks may be locked")
    assert (name, properties) == (
        "error",
        {"file": "lockfiles/sample.lock.toml", "line": "17", "title": "envlock check: changed gpu.vbios"},
    )
    assert message.split("\n") == [
        "gpu.vbios on 0000:03:00.0: 96.00.5E.00.01 → 96.00.A5.00.01",
        "why: firmware of the board",
        "fix: flash the `locked` one",
        "run: nvidia-smi -i 0000:03:00.0 -pl 650",
    ]


def test_github_never_has_more_than_ten_of_a_kind() -> None:
    """It would drop the eleventh in silence: nine, and one that counts the rest."""
    many = tuple(dataclasses.replace(CHANGED, key=f"gpu.fact{number}") for number in range(25))
    found = commands(formats.render(view_of(Comparison(drifts=many, notes=("note",) * 25)), "github"))
    assert [name for name, _, _ in found].count("error") == 10
    assert [name for name, _, _ in found].count("notice") == 9
    assert found[-1][2].endswith("; 16 more: `--format markdown` shows all")


def test_github_annotates_equal_gpus_once() -> None:
    """Eight GPUs with the same drift are one annotation with eight places."""
    eight = tuple(dataclasses.replace(CHANGED, device=f"0000:0{number}:00.0") for number in range(8))
    found = commands(formats.render(view_of(Comparison(drifts=eight)), "github"))
    assert len(found) == 2
    assert "gpu.vbios on 8 devices (0000:00:00.0, " in found[0][2]


@given(VIEWS)
def test_github_holds_only_our_commands(view: View) -> None:
    """No text ends a command, begins another one, or adds a property."""
    found = commands(formats.render(view, "github"))
    assert {name for name, _, _ in found} <= {"error", "warning", "notice"}
    assert all(set(properties) <= {"file", "line", "title"} for _, properties, _ in found)
    assert view.headline in found[-1][2]
    annotations = found[len(view.notes) : -1]
    for (_, properties, _), group in zip(annotations, alike(view.items), strict=True):
        assert properties["title"] == f"envlock check: {group[0].kind} {group[0].key}"
        assert properties.get("file", "") == view.path


# ---- markdown --------------------------------------------------------------------------------


def rendered(view: View) -> list[Any]:
    """Return the blocks of a summary as CommonMark with tables reads it."""
    return MarkdownIt("commonmark").enable("table").parse(formats.render(view, "markdown"))


def plain(token: Any) -> str:
    """Return what a person sees of one inline text, in which only our code tags and plain text may stand."""
    assert {child.type for child in token.children} <= {"text", "text_special", "html_inline"}, token.content
    tags = [child.content for child in token.children if child.type == "html_inline"]
    assert set(tags) <= {"<code>", "</code>"}
    return "".join(child.content for child in token.children if child.type != "html_inline")


def cells(view: View) -> list[str]:
    """Return what a person reads in the cells of the tables' rows."""
    tokens = rendered(view)
    return [plain(tokens[index + 1]) for index, token in enumerate(tokens) if token.type == "td_open"]


@NAMES
def test_markdown_begins_with_the_verdict(name: str) -> None:
    """And ends with the counts, or what failed."""
    view = VIEWS_BY_NAME[name]
    tokens = rendered(view)
    assert (tokens[0].tag, tokens[1].content.split(" ", 1)[1]) == ("h3", f"envlock check: {view.verdict}")


def test_markdown_shows_each_fact_in_a_row() -> None:
    """What happened, the fact, the place, both values, the reason."""
    assert cells(VIEWS_BY_NAME["drift"])[:10] == [
        "❌ changed", "gpu.vbios", "0000:03:00.0", "96.00.5E.00.01 → 96.00.A5.00.01", "",
        "❔ unknown", "gpu.ecc", "0000:05:00.0", "yes → (failed)", "GPU is lost",
    ]  # fmt: skip
    text = formats.render(VIEWS_BY_NAME["drift"], "markdown")
    assert "fix: flash the <code>locked</code> one" in text
    assert "run: <code>nvidia-smi -i 0000:03:00.0 -pl 650</code>" in text
    assert "- note: clocks may be locked" in text


def test_markdown_fits_a_step_summary() -> None:
    """GitHub takes one mebibyte: rows and letters are bounded, and what is left out is counted."""
    many = tuple(dataclasses.replace(CHANGED, key=f"gpu.fact{n}", observed="x|" * 3000) for n in range(1000))
    text = formats.render(view_of(Comparison(drifts=many)), "markdown")
    assert len(text.encode()) < 1 << 20
    assert "and 800 more: `--format json` holds all" in text


@given(VIEWS)
def test_markdown_takes_no_text_for_syntax(view: View) -> None:
    """No value makes a column, a tag, a link, a mention or emphasis; each is read back as it is."""
    tokens = rendered(view)
    for token in tokens:
        if token.type == "inline":
            plain(token)
    assert {token.type for token in tokens if token.type.endswith("_open")} <= {
        "heading_open", "paragraph_open", "table_open", "thead_open", "tbody_open", "tr_open", "th_open", "td_open",
        "bullet_list_open", "list_item_open",
    }  # fmt: skip
    assert [token.tag for token in tokens if token.type == "heading_open"] == ["h3"]
    groups = (*alike(view.items), *alike(view.excused))
    read = cells(view)
    assert len(read) == len(groups) * 5
    for index, group in enumerate(groups):
        if len(group[0].said) <= markdown.MOST_LETTERS:
            assert (read[index * 5 + 1], read[index * 5 + 3]) == (group[0].key.strip(), group[0].said.strip())
    assert "@" not in formats.render(view, "markdown")


# ---- prometheus ------------------------------------------------------------------------------


def samples(view: View) -> list[Any]:
    text = formats.render(view, "prometheus")
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


@NAMES
def test_prometheus_has_one_verdict(name: str) -> None:
    """One of three is 1, also after a failure; the exit code stands beside it."""
    view = VIEWS_BY_NAME[name]
    found = samples(view)
    verdicts = {each.labels["verdict"]: each.value for each in found if each.name == "envlock_check_verdict"}
    assert verdicts == {word: float(word == view.verdict) for word in ("match", "drift", "unknown")}
    assert [each.value for each in found if each.name == "envlock_check_exit_code"] == [view.exit_code]


def test_prometheus_counts_and_names() -> None:
    """How many facts came to what, and each that is not simply the same."""
    found = samples(VIEWS_BY_NAME["drift"])
    facts = {each.labels["state"]: each.value for each in found if each.name == "envlock_check_facts"}
    assert facts == {"checked": 7, "drift": 1, "unknown": 1, "warning": 1, "allowed": 1, "waived": 1, "ignored": 1}
    drifts = {
        (each.labels["key"], each.labels["device"], each.labels["level"])
        for each in found
        if each.name == "envlock_drift"
    }
    assert ("gpu.vbios", "0000:03:00.0", "error") in drifts
    assert ("gpu.power_limit", "0000:03:00.0", "note") in drifts


def test_prometheus_has_no_sample_twice() -> None:
    """Two drifts of one fact are one sample: the collector refuses a whole file for one sample twice."""
    found = samples(view_of(Comparison(drifts=(CHANGED, CHANGED, UNKNOWN))))
    keys = [(each.name, tuple(sorted(each.labels.items()))) for each in found]
    assert len(keys) == len(set(keys))
    assert [each.value for each in found if each.labels.get("key") == "gpu.vbios"] == [2]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@NAMES
def test_promtool_finds_nothing_to_say(name: str) -> None:
    """Prometheus' own linter."""
    text = formats.render(VIEWS_BY_NAME[name], "prometheus")
    ended = subprocess.run(["promtool", "check", "metrics"], input=text.encode(), capture_output=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


@given(VIEWS)
def test_prometheus_labels_hold_any_text(view: View) -> None:
    """A reader gets back each key, character for character."""
    found = {each.labels["key"] for each in samples(view) if each.name == "envlock_drift"}
    assert found == {item.key for item in (*view.items, *view.excused)}


# ---- all -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", formats.MODULES)
def test_a_result_gives_the_same_bytes_twice(form: str) -> None:
    """No clock, no order of chance."""
    assert formats.render(every_view()["drift"], form) == formats.render(every_view()["drift"], form)


@settings(max_examples=30)
@given(VIEWS)
def test_no_format_lets_a_control_character_through(view: View) -> None:
    """A report may be printed on a terminal."""
    for form in formats.MODULES:
        text = formats.render(view, form)
        assert all(letter.isprintable() or letter == "\n" for letter in html.unescape(text).replace("\x00", "")), form
        text.encode("utf-8")


def test_a_level_has_a_word_in_every_format() -> None:
    """No level is forgotten by a format: rendering one item of each fails nowhere."""
    items = tuple(
        dataclasses.replace(VIEWS_BY_NAME["drift"].items[0], level=level) for level in Level if level != Level.NOTE
    )
    for form in formats.MODULES:
        assert formats.render(dataclasses.replace(VIEWS_BY_NAME["drift"], items=items), form)


# ---- what readers bear -----------------------------------------------------------------------


def test_sarif_holds_no_text_that_code_scanning_refuses() -> None:
    """At most 1024 letters in a message or a description; the advice is kept."""
    long = dataclasses.replace(CHANGED, observed="x" * 5000, why="y" * 5000)
    run = json.loads(formats.render(view_of(Comparison(drifts=(long,))), "sarif"))["runs"][0]
    rule = run["tool"]["driver"]["rules"][0]
    texts = (run["results"][0]["message"]["text"], rule["shortDescription"]["text"], rule["fullDescription"]["text"])
    assert all(len(text) <= 1024 for text in texts)
    assert texts[0].endswith(". Run: nvidia-smi -i 0000:03:00.0 -pl 650")


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_a_failure_is_told_as_one(name: str) -> None:
    """No format says of a command that failed that a fact were not as it was locked."""
    view = every_view()[name]
    for form in formats.MODULES:
        text = formats.render(view, form)
        assert "as it was locked" not in text, form
        assert "envlock: " not in text.replace("envlock: envlock could not give an answer", ""), form
        assert "what differs" not in text, form
    assert view.items[0].message == f"could not tell: {view.items[0].said}"
    markdown = formats.render(view, "markdown")
    assert "### ❔ envlock check: unknown" in markdown
    assert ("fix: " in markdown) is bool(view.items[0].fix)
