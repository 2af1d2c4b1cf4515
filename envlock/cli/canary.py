"""`envlock canary`: run the known workload and judge it, or compare two of its reports."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from envlock.cli import options, usage

if TYPE_CHECKING:
    from envlock.run.job import Done


@click.group(name="canary", cls=usage.Group)
def command() -> None:
    """Run the canary, or compare two of its reports."""


@command.command(name="run")
@options.lock_option
@options.spec_option
@click.option("--image", metavar="REF", help="The image to run in [default: the one that the lockfile holds].")
@click.option("--host", "on_host", is_flag=True, help="Run with this Python on this host, in no container.")
@click.option("--record", is_flag=True, help="Write the outputs into the lockfile as the golden of this class.")
@click.option("--runs", type=click.IntRange(1), default=2, show_default=True, help="Runs in each process.")
@click.option("--processes", type=click.IntRange(1), default=2, show_default=True, help="Fresh processes.")
@click.option(
    "--env", "env", multiple=True, metavar="NAME=VALUE", help="Set a variable that the lockfile does not hold."
)
@click.option("--backend", type=click.Choice(("cpu", "cuda")), help="[default: cuda when the lockfile holds GPUs]")
@click.option("--device", metavar="GPU", help="The GPU to run on, by index or UUID [default: the first of all].")
@click.option("--flip", metavar="WEIGHT:BIT", help="Flip one bit of one weight: this must be seen.")
@click.option("--values", is_flag=True, help="Keep every element of the models' outputs, not 64 of each.")
@click.option("--deadline", type=click.IntRange(1), default=900, show_default=True, help="Seconds for all of it.")
@options.format_option("text", "json")
@options.output_option
def run(
    lock: Path | None,
    spec: Path | None,
    image: str | None,
    on_host: bool,
    record: bool,
    runs: int,
    processes: int,
    env: tuple[str, ...],
    backend: str | None,
    device: str | None,
    flip: str | None,
    values: bool,
    deadline: int,
    output_format: str,
    output: Path | None,
) -> int:
    """Run the canary in a container (or with --host) and judge it against the golden of its class.

    Exit codes: 0 match, 1 drift, 3 could not tell (no golden for this class, no engine),
    4 the answer was tampered with.
    """
    from envlock import lockstore
    from envlock.run import job

    path = lockstore.find(lock, spec, Path())
    wanted = job.Wanted(
        image=image,
        on_host=on_host,
        record=record,
        runs=runs,
        processes=processes,
        env=job.variables(env),
        backend=backend,
        device=job.device(device),
        flip=job.flip(flip),
        values=values,
        deadline=deadline,
    )
    return _told(job.run(path, wanted, options.say), output_format, output)


def _told(done: "Done", output_format: str, output: Path | None) -> int:
    """Print what came of a run or a recording, and return its exit code."""
    from envlock.report.canary_text import judgement_text

    for text in done.refused:
        options.say_error(f"not recorded: {text}", None)
    if output_format == "json":
        options.emit_json(done.to_document(), output)
    else:
        options.emit(judgement_text(done.judgement, done.report, done.name, options.colored(output)), output)
    return done.exit_code


@command.command(name="record")
@click.argument("report", type=options.PATH)
@options.lock_option
@options.spec_option
@options.format_option("text", "json")
@options.output_option
def record(report: Path, lock: Path | None, spec: Path | None, output_format: str, output: Path | None) -> int:
    """Record REPORT, made on another machine, as the golden of its platform class.

    REPORT is what `canary run --format json` or `make gpu-check` wrote. It is refused where
    `canary run --record` refuses. Exit codes: 0 recorded, 1 drift, 3 not recorded.
    """
    from envlock import lockstore
    from envlock.run import job

    done = job.record_report(lockstore.find(lock, spec, Path()), report, options.say)
    return _told(done, output_format, output)


@command.command(name="compare")
@click.argument("a", type=options.PATH)
@click.argument("b", type=options.PATH)
@options.format_option("text", "json")
@options.output_option
def compare(a: Path, b: Path, output_format: str, output: Path | None) -> int:
    """Compare two reports that `canary run --format json` wrote: A and B.

    Says what differs, the first operator, how far (ULP, largest difference, cosine), and
    which settings differ. Exit codes: 0 match, 1 drift, 3 could not tell.
    """
    from envlock.report.canary_text import comparison_text
    from envlock.run import job

    comparison = job.compare_files(a, b)
    if output_format == "json":
        options.emit_json(comparison.to_document(), output)
    else:
        options.emit(comparison_text(comparison, str(a), str(b), options.colored(output)), output)
    return comparison.exit_code
