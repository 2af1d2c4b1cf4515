"""Canary results for a person: what was judged, what differs, what to look at first."""

import re
from collections.abc import Iterator

from envlock.drift import Verdict
from envlock.report.words import VERDICT_COLORS, counted, listed, paint, shown
from envlock.run.findings import Finding, Judgement
from envlock.run.reports import Report
from envlock.run.twins import Change, Comparison, Parting

_TIERS = {"T1": "known answers", "T2": "mode signatures", "T3": "models"}
_MOST = 12
"""Findings of one tier that are shown; the JSON form holds all of them."""

_DIGEST = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}")

_SAID = {
    Verdict.MATCH: "the same bits as the golden",
    Verdict.DRIFT: "not what the lockfile holds",
    Verdict.UNKNOWN: "could not tell",
}


def judgement_text(judgement: Judgement, report: Report, name: str, colored: bool) -> str:
    """Return what `canary run` found, for the environment called `name`."""
    verdict = judgement.verdict
    lines = [f"{paint(verdict, VERDICT_COLORS[verdict], colored)}: canary of {name}: {_SAID[verdict]}"]
    for tier in judgement.tiers:
        word = tier.verdict
        if not tier.total:
            counts = "not run"
        elif tier.unknown == tier.total:
            counts = f"{tier.total} computed, none judged"
        else:
            parts = (
                f"{tier.differing} differ" if tier.differing else "",
                f"{tier.unknown} unknown" if tier.unknown else "",
            )
            counts = listed((f"{tier.matched} of {tier.total}", *parts))
        painted = paint(f"{word:<8}", VERDICT_COLORS[word], colored)
        lines.append(f"  {tier.name} {_TIERS[tier.name]:<16} {painted} {counts}")
    for place in ("settings", *_TIERS):
        lines += _tier_lines([finding for finding in judgement.findings if finding.tier == place], colored)
    lines += _cause_lines(judgement.findings)
    for text in judgement.unknowns[:_MOST]:
        lines += ["", f"  {paint('unknown', 'yellow', colored)}: {shown(text)}"]
    for text in judgement.hints:
        lines += ["", f"  {paint('hint', 'cyan', colored)}: {shown(text)}"]
    lines += ["", _where(report)]
    return "\n".join(lines) + "\n"


def _tier_lines(findings: list[Finding], colored: bool) -> Iterator[str]:
    """Yield the findings of one tier, those of one kind and message under one heading."""
    heading = ""
    for number, finding in enumerate(findings):
        if number == _MOST:
            yield f"    and {counted(len(findings) - _MOST, 'finding')} more: `--format json` holds all"
            return
        place = "" if finding.tier == "settings" else f" {finding.tier}"
        title = f"  {paint(finding.kind, 'red', colored)}{place}: {shown(finding.message)}"
        if title != heading:
            heading = title
            yield from ("", title)
        yield f"    {shown(finding.name)}: {_short(finding.expected)} → {_short(finding.found)}"
        if finding.also:
            more = f" and {len(finding.also) - 6} more" if len(finding.also) > 6 else ""
            yield f"      alone, these give other bits too: {shown(', '.join(finding.also[:6]))}{more}"


def _short(text: str) -> str:
    """Return `text` with digests cut for people; the JSON form holds them whole."""
    return _DIGEST.sub(r"\1…", shown(text)) or "(nothing)"


def _cause_lines(findings: tuple[Finding, ...]) -> Iterator[str]:
    causes = dict.fromkeys(cause for finding in findings if finding.tier != "settings" for cause in finding.causes)
    if causes:
        yield from ("", "  what could explain it:", *(f"    {shown(cause)}" for cause in causes))


def _where(report: Report) -> str:
    if report.failure:
        return "  nothing ran"
    settings = dict(report.settings)
    place = f"image {shown(report.image)}" if report.image else "this host"
    named = (("torch", "torch.version"), ("threads", "threads"), ("ATen", "aten.cpu-capability"))
    said = ", ".join(f"{word} {shown(settings.get(name, 'unknown'))}" for word, name in named)
    return f"  ran on {place}: {shown(report.backend)}, {said}"


def comparison_text(comparison: Comparison, name_a: str, name_b: str, colored: bool) -> str:
    """Return what differs between two reports."""
    verdict = comparison.verdict
    said = {
        Verdict.MATCH: f"{comparison.compared} outputs, the same bits",
        Verdict.DRIFT: f"{len(comparison.outputs)} of {comparison.compared} outputs differ",
        Verdict.UNKNOWN: "could not tell",
    }[verdict]
    lines = [f"{paint(verdict, VERDICT_COLORS[verdict], colored)}: {shown(name_a)} and {shown(name_b)}: {said}"]
    for text in comparison.unknowns:
        lines.append(f"  {paint('unknown', 'yellow', colored)}: {shown(text)}")
    for name in comparison.wrong:
        lines.append(f"  {paint('broken-hardware', 'red', colored)} {shown(name)}: wrong in both")
    by_name = {parting.name: parting for parting in comparison.outputs}
    for name in comparison.first:
        lines += ["", f"  first operator that differs: {paint(shown(name), 'bold', colored)}"]
        lines += _parting_lines(by_name[name])
    rest = [parting for parting in comparison.outputs if parting.name not in comparison.first]
    for tier in ("T1", "T2", "T3"):
        found = [parting for parting in rest if parting.tier == tier]
        if found:
            lines += [
                "",
                f"  {tier} {_TIERS[tier]}: {counted(len(found), 'output')} more"
                if tier == "T3"
                else f"  {tier} {_TIERS[tier]}:",
            ]
        for parting in found[:_MOST]:
            lines += [f"    {shown(parting.name)}", *(f"  {line}" for line in _parting_lines(parting))]
        if len(found) > _MOST:
            lines.append(f"    and {len(found) - _MOST} more: `--format json` holds all")
    for title, changes in (
        ("settings", comparison.settings),
        ("platform class", comparison.platform),
        ("for information", comparison.information),
    ):
        lines += _change_lines(title, changes)
    return "\n".join(lines) + "\n"


def _parting_lines(parting: Parting) -> list[str]:
    apart = parting.distance
    if parting.nan_bits:
        return ["    only the bits inside NaNs differ"]
    if apart is None:
        return [f"    {_short(parting.a)} → {_short(parting.b)}"]
    if not apart.differing:
        return [f"    none of {apart.elements} sampled elements differs, others do"]
    ulp = "" if apart.ulp is None else f"largest distance {apart.ulp} ulp, "
    cosine = "" if apart.cosine is None else f", cosine {apart.cosine:.15g}"
    found = f"{apart.differing} differ, {ulp}{apart.largest:.3g} absolute{cosine}"
    return [f"    over {apart.elements} sampled elements: {found}"]


def _change_lines(title: str, changes: tuple[Change, ...]) -> list[str]:
    if not changes:
        return []
    return ["", f"  {title} that differ:", *(f"    {shown(name)}: {shown(a)} → {shown(b)}" for name, a, b in changes)]
