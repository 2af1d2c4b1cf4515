"""A comparison as a JSON document; its schema is `docs/schema/check-result.schema.json`."""

from typing import Any

from envlock.drift import Comparison, Drift, Kind

CHECK_SCHEMA = "envlock.check-result/1"


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
            "waived": len(comparison.waived),
            "warnings": sum(1 for drift in comparison.drifts if drift.severity == "warning"),
            **{kind.value: comparison.count(kind) for kind in Kind},
        },
        "drifts": [_drift(drift) for drift in comparison.drifts],
        "allowed": [_drift(drift) for drift in comparison.allowed],
        "waived": [_drift(drift) for drift in comparison.waived],
        "notes": list(comparison.notes),
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
        "command": drift.command or None,
        "reset": drift.reset,
        "until": drift.until or None,
    }
