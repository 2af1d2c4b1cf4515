"""`envlock probe`."""

import json
from pathlib import Path

from click.testing import CliRunner

from envlock.cli.main import cli
from envlock.facts import Facts


def test_text_and_json_say_the_same_facts() -> None:
    """JSON is one document with its schema; the text is for people. Both end with exit code 0."""
    text = CliRunner().invoke(cli, ["probe"])
    document = CliRunner().invoke(cli, ["probe", "--format", "json"])

    assert (text.exit_code, document.exit_code) == (0, 0)
    assert text.stdout.count("\n\n") >= 5
    assert json.loads(document.stdout)["schema"] == "envlock.facts/1"


def test_output_file_can_be_read_back(tmp_path: Path) -> None:
    """`-o FILE` writes the document and leaves standard output empty."""
    path = tmp_path / "facts.json"
    result = CliRunner().invoke(cli, ["probe", "--format", "json", "-o", str(path)])

    assert (result.exit_code, result.stdout) == (0, "")
    assert Facts.from_document(json.loads(path.read_text()), path).host["cpu.threads"].has_value


def test_only_keeps_a_prefix() -> None:
    """`--only` keeps the facts that start with it."""
    result = CliRunner().invoke(cli, ["probe", "--format", "json", "--only", "system.k"])

    assert sorted(json.loads(result.stdout)["host"]) == ["system.kernel", "system.kernel_parameters"]
