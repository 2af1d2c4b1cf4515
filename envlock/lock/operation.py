"""`lock`: a spec and what was locked before, to a lockfile whose packages are in the store.

What is locked stays locked: with an unchanged spec nothing is resolved again, and with a
changed one the old versions are preferred. Only `upgrade` moves a version, and a version
that no source has any more is an error that names it. Another lockfile can lend its
versions as a seed: those are wishes, and the ones that are gone are told and replaced.
"""

import dataclasses
from collections.abc import Callable

from envlock import policy, waivers
from envlock.errors import UsageError
from envlock.lock import fitness, models, python, settings
from envlock.lock.content import Ports, Request, content
from envlock.lockfile import Environment, Host, Lockfile, host_of
from envlock.registry import GPU, HOST, in_scope
from envlock.spec import Spec


def lock(request: Request, ports: Ports) -> Lockfile:
    """Return the lockfile for `request.spec`; every package it names is then in the store.

    Call it inside `ports.store.using()`, and write the result before leaving: what is
    fetched must not be collected in between.
    """
    where = str(request.where)
    python.check_requirements(request.spec.python.requirements, where)
    determinism = settings.determinism_of(request.spec.determinism, where)
    files = models.locked_files(request.spec.files, request.where.parent, where)
    _known_names(request)
    waivers.refuse_expired(request.spec.policy, request.today, where)
    inside = content(request, ports)
    host = _host(request, ports)
    rules = policy.rules_of(host, request.spec.policy, where, request.spec.policy_profile)
    for line in (*fitness.left_unknown(host, rules), *fitness.outside_its_rules(host, rules, request.today)):
        ports.say(f"warning: {line}")
    if _kept(request) is None:
        for line in fitness.left_open(host, rules, request.spec.policy):
            ports.say(line)
    found = Lockfile(
        environment=_environment(request.spec),
        base=inside.base,
        apt=inside.apt,
        python=inside.python,
        files=files,
        determinism=determinism,
        host=host,
        policy_profile=request.spec.policy_profile,
        policy=rules,
    )
    return _keep_results(found, request.previous, ports.say)


def _environment(spec: Spec) -> Environment:
    return Environment(
        name=spec.name,
        platform=spec.platform,
        python=spec.python.version,
        interpreter=spec.python.interpreter,
        epoch=spec.epoch,
        spec=spec.digest(),
    )


def _known_names(request: Request) -> None:
    """Refuse an `upgrade_packages` name that is not locked: it would upgrade nothing, silently."""
    if request.previous is None and request.upgrade_packages:
        raise UsageError("there is no lockfile yet, so no package of it can be upgraded", where=request.where)
    if request.previous is None:
        return
    known = {deb.name for deb in request.previous.apt} | {wheel.name for wheel in request.previous.python}
    for name in sorted(request.upgrade_packages - known):
        raise UsageError(f"no package {name!r} is locked", where=request.where, hint="names are those of the lockfile")


# ---- host and policy -------------------------------------------------------------------


def _host(request: Request, ports: Ports) -> Host:
    """Return `[host]`: as it was locked, unless there is none yet or it shall be observed anew.

    Relocking on another machine must not quietly make that one the golden host.
    """
    kept = _kept(request)
    if kept is not None:
        return kept
    ports.say("observing this host")
    facts = ports.probe()
    for line in fitness.doubts(facts):
        ports.say(f"warning: {line}")
    host_keys = {entry.key for entry in in_scope(HOST, locked_only=True)}
    gpu_keys = {entry.key for entry in in_scope(GPU, locked_only=True)}
    return host_of(
        {key: seen for key, seen in facts.host.items() if key in host_keys},
        [{key: seen for key, seen in gpu.facts.items() if key in gpu_keys} for gpu in facts.gpus()],
    )


def _kept(request: Request) -> Host | None:
    """Return the locked host where it stays; None where the host is observed now."""
    return None if request.update_host or request.previous is None else request.previous.host


def _keep_results(found: Lockfile, previous: Lockfile | None, say: Callable[[str], None]) -> Lockfile:
    """Return `found` with the image and goldens of `previous`, when they still belong to it."""
    if previous is None:
        return found
    if previous.inputs() == found.inputs():
        return dataclasses.replace(found, image=previous.image, goldens=previous.goldens)
    dropped = []
    if previous.image is not None:
        dropped.append("the image digest (`envlock build` makes it anew)")
    if previous.goldens:
        dropped.append(f"{len(previous.goldens)} golden outputs (`envlock canary run --record` makes them anew)")
    if dropped:
        say(f"the inputs have changed: dropped {' and '.join(dropped)}")
    return found
