"""The formats that render a `View`, by name; each is a module of its own, loaded when it is asked for.

Text and JSON are not among them: they are made from the comparison itself.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from envlock.report.view import View

MODULES = {
    "junit": "junit",
    "sarif": "sarif",
    "github": "github",
    "gitlab": "gitlab",
    "markdown": "markdown",
    "prometheus": "prometheus",
}
NAMES = ("text", "json", *MODULES)
"""What `--format` of `check` and `diff` takes."""

PROTOCOLS = ("slurm", "npd", "nagios")
"""What `--as` of `check` takes (`envlock.report.node`)."""


def render(view: "View", name: str) -> str:
    """Return `view` in the format `name`, one of `MODULES`."""
    module = importlib.import_module(f"envlock.report.{MODULES[name]}")
    text: str = module.render(view)
    return text
