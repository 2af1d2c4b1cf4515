"""The commands of the zip application that travels to a node or into a container.

`python3 -I envlock-agent.pyz probe` prints what `envlock probe` prints on the same host;
`canary` runs the canary. Exit codes are those of `envlock`.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import List, NoReturn, Optional, Tuple

from envlock import __version__
from envlock.errors import EXIT_MATCH, EXIT_UNKNOWN, EXIT_USAGE, EnvlockError, UsageError
from envlock.facts import Facts

_WITH_VALUE = ("--deadline", "--format", "--only", "--nvidia-smi", "--pid")


class _Parser(argparse.ArgumentParser):
    """A parser whose errors read like envlock's own."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, "error: {}\n\nhint: `{} --help` lists the options\n".format(message, self.prog))


def main(argv: Optional[List[str]] = None) -> int:
    """Run one command and return its exit code; a person never sees a traceback."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        if arguments[:1] == ["canary"]:
            from envlock.canary.main import main as canary

            code: int = canary(arguments[1:])
            return code
        own, command = _parted(arguments)
        options = _parser().parse_args(own)
        if options.execute or options.pid is not None:
            return _libraries(options, command)
        _write(_probe(options))
        return EXIT_MATCH
    except EnvlockError as error:
        if _wants_json(_parted(arguments)[0]):
            _write(_json(error.to_document()))
        sys.stderr.write("error: {}\n".format(error))
        if error.hint:
            sys.stderr.write("\nhint: {}\n".format(error.hint))
        return error.exit_code
    except BrokenPipeError:
        _silence()
        return 141
    except OSError as error:
        _silence()
        sys.stderr.write("error: {}\n".format((error.strerror or str(error)).lower()))
        return EXIT_UNKNOWN
    except KeyboardInterrupt:
        sys.stderr.write("aborted\n")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="envlock-agent.pyz", description="Observe this host, or run the canary on it.")
    parser.add_argument("--version", action="version", version="envlock-agent {}".format(__version__))
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    probe = commands.add_parser("probe", help="print the facts of this host")
    probe.add_argument("--format", choices=("text", "json"), default="text", help="output (default: text)")
    probe.add_argument("--only", default="", metavar="PREFIX", help="only facts whose keys start with PREFIX")
    probe.add_argument("--nvidia-smi", metavar="FILE", help="facts from what nvidia-smi printed (`-`: standard input)")
    probe.add_argument("--cross-check", action="store_true", help="ask nvidia-smi beside NVML")
    probe.add_argument("--no-identity", action="store_true", help="leave out what names one machine or part")
    probe.add_argument("--pid", type=int, metavar="PID", help="the CUDA libraries that a process has loaded")
    probe.add_argument(
        "--exec", dest="execute", action="store_true", help="run CMD, which is all that follows, and look at it"
    )
    probe.add_argument("--deadline", type=float, metavar="SECONDS", help="with --exec: end CMD after that long")
    probe.add_argument("--no-trace", action="store_true", help="with --exec: only look again and again")
    commands.add_parser("canary", help="run the canary", add_help=False)
    return parser


def _probe(options: argparse.Namespace) -> str:
    if not options.no_identity:
        return _shown(_facts(options), options.format)
    from envlock.probe.identity import observed_without_identity

    return _shown(observed_without_identity(lambda: _facts(options)), options.format)


def _facts(options: argparse.Namespace) -> Facts:
    from envlock.probe import probe, recorded_smi

    if options.nvidia_smi is None:
        return probe(only=options.only, cross_check=options.cross_check)
    if options.cross_check:
        raise UsageError("--cross-check is about this host, --nvidia-smi is not", where="probe")
    name = "standard input" if options.nvidia_smi == "-" else options.nvidia_smi
    return recorded_smi(_input(options.nvidia_smi), name, options.only)


def _input(path: str) -> bytes:
    from envlock.probe.smi import MAX_BYTES

    if path == "-":
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    try:
        with open(path, "rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError((error.strerror or str(error)).lower(), where=path) from None


def _shown(facts: Facts, output_format: str) -> str:
    if output_format == "json":
        return _json(facts.to_document())
    from envlock.probe.text import render

    return render(facts)


def _parted(arguments: List[str]) -> Tuple[List[str], List[str]]:
    """Return the options of envlock, and the program that follows `--exec` and them, with its own."""
    if "--exec" not in arguments:
        return arguments, []
    at = arguments.index("--exec") + 1
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] != "--":
        at += 2 if arguments[at] in _WITH_VALUE else 1
    rest = arguments[at:]
    return arguments[:at], rest[1:] if rest[:1] == ["--"] else rest


def _libraries(options: argparse.Namespace, command: List[str]) -> int:
    from envlock.probe.libraries.operation import of_command, of_pid, shortcoming
    from envlock.probe.libraries.text import render

    about_facts = options.only or options.nvidia_smi or options.cross_check or options.no_identity
    if options.execute and not command or about_facts or (options.execute and options.pid is not None):
        raise UsageError("give either `--pid PID` or `--exec CMD`, last and without options about facts", where="probe")
    if options.execute:
        loaded = of_command(command, options.deadline, trace=not options.no_trace)
    else:
        loaded = of_pid(options.pid)
    _write(_json(loaded.to_document()) if options.format == "json" else render(loaded))
    error = shortcoming(loaded)
    if error is None:
        return EXIT_MATCH
    sys.stderr.write("error: {}\n\nhint: {}\n".format(error, error.hint))
    return error.exit_code


def _json(document: object) -> str:
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _write(text: str) -> None:
    # Bytes, because a bare node's locale may not know the letters.
    sys.stdout.buffer.write(text.encode("utf-8"))
    sys.stdout.buffer.flush()


def _silence() -> None:
    """Drop what could not be written, so that it is not tried again at interpreter shutdown."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _wants_json(arguments: List[str]) -> bool:
    joined = " ".join(arguments)
    return "--format json" in joined or "--format=json" in joined
