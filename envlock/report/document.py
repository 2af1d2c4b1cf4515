"""Results as JSON documents; their schemas are in `docs/schema/`."""

from typing import Any

from envlock.difference import Change, Difference, Differences
from envlock.drift import Comparison, Drift, Kind

CHECK_SCHEMA = "envlock.check-result/1"
DIFF_SCHEMA = "envlock.diff-result/1"


def check_document(
    comparison: Comparison, subject: str, lockfile: str, environment: str, inputs: str
) -> dict[str, Any]:
    """Return what `check` found (`docs/schema/check-result.schema.json`)."""
    return {
        "schema": CHECK_SCHEMA,
        "verdict": comparison.verdict.value,
        "exit-code": comparison.verdict.exit_code,
        "subject": subject,
        "lockfile": {"path": lockfile, "environment": environment, "inputs": inputs},
        "counts": {
            "checked": comparison.checked,
            "ignored": comparison.ignored,
            "allowed": len(comparison.allowed),
            "warnings": sum(1 for drift in comparison.drifts if drift.severity == "warning"),
            **{kind.value: comparison.count(kind) for kind in Kind},
        },
        "drifts": [_drift(drift) for drift in comparison.drifts],
        "allowed": [_drift(drift) for drift in comparison.allowed],
    }


def _drift(drift: Drift) -> dict[str, Any]:
    return {
        "key": drift.key,
        "device": drift.device or None,
        "kind": drift.kind.value,
        "severity": drift.severity,
        "expected": drift.expected,
        "observed": drift.observed,
        "because": drift.because or None,
        "why": drift.why or None,
        "fix": drift.fix or None,
    }


def diff_document(differences: Differences, before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return what `diff` found (`docs/schema/diff-result.schema.json`).

    `before` and `after` name the two sides: `path` and `kind` (`lockfile` or `facts`).
    """
    return {
        "schema": DIFF_SCHEMA,
        "verdict": differences.verdict.value,
        "exit-code": differences.verdict.exit_code,
        "before": before,
        "after": after,
        "counts": {
            **{change.value: differences.count(change) for change in Change},
            "allowed": len(differences.allowed),
        },
        "differences": [_difference(item) for item in differences.found],
        "allowed": [_difference(item) for item in differences.allowed],
    }


def _difference(difference: Difference) -> dict[str, Any]:
    return {
        "section": difference.section,
        "key": difference.key,
        "device": difference.device or None,
        "change": difference.change.value,
        "before": difference.before or None,
        "after": difference.after or None,
        "because": difference.because or None,
    }
