"""`envlock canary`: what the program prints and the code it ends with."""

import dataclasses
import json
from pathlib import Path

import jsonschema
import made_reports
import program
import pytest
import samples

from envlock import lockstore
from envlock import spec as specs
from envlock.gpucheck import canaries
from envlock.image.engine import Engine
from envlock.lock.settings import determinism_of


def written(folder: Path, name: str, document: object) -> Path:
    """Write a report and return its path."""
    path = folder / name
    path.write_text(json.dumps(document))
    return path


def test_comparing_equal_reports_ends_with_0(tmp_path: Path) -> None:
    """The first line is the verdict."""
    a, b = (written(tmp_path, name, made_reports.report()) for name in ("a.json", "b.json"))
    ended = program.envlock("canary", "compare", a, b)

    assert (ended.code, ended.out) == (0, f"match: {a} and {b}: 10 outputs, the same bits\n")


def test_comparing_reports_that_differ_ends_with_1_and_names_the_operator(tmp_path: Path) -> None:
    """What a person looks at first stands first."""
    a = written(tmp_path, "a.json", made_reports.report())
    other = made_reports.with_outputs(made_reports.report(), t3__encoder__002__softmax=[0.25, 0.5])
    b = written(tmp_path, "b.json", made_reports.with_settings(other, threads="1"))
    ended = program.envlock("canary", "compare", a, b)

    assert ended.code == 1
    assert "first operator that differs: t3.encoder.002.softmax" in ended.out
    assert "over 2 sampled elements: 1 differ, largest distance 4194304 ulp, 0.25 absolute, cosine 0.9" in ended.out
    assert "threads: 2 → 1" in ended.out


def test_comparing_prints_one_json_document(tmp_path: Path) -> None:
    """Standard output holds the document and nothing else."""
    a, b = (written(tmp_path, name, made_reports.report()) for name in ("a.json", "b.json"))
    ended = program.envlock("canary", "compare", a, b, "--format", "json")

    assert (ended.code, ended.document["verdict"], ended.document["compared"]) == (0, "match", 10)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "is not JSON"), ("{}", "unexpected schema None"), ("[]", "unexpected type (expected object)")],
)
def test_a_file_that_is_no_report_is_exit_2(tmp_path: Path, text: str, message: str) -> None:
    """The file is named, with what is wrong."""
    good = written(tmp_path, "a.json", made_reports.report())
    bad = tmp_path / "bad.json"
    bad.write_text(text)
    ended = program.envlock("canary", "compare", good, bad)

    assert ended.code == 2
    assert f"error: {bad}: {message}" in ended.err


def test_a_failed_report_is_exit_3(tmp_path: Path) -> None:
    """There is nothing to compare, and the reason is said."""
    good = made_reports.report()
    failed = {"schema": good["schema"], "suite": "torch/1", "outcome": "failed", "failure": "no torch", "hint": None}
    ended = program.envlock("canary", "compare", written(tmp_path, "a", good), written(tmp_path, "b", failed))

    assert (ended.code, "did not run: no torch" in ended.out) == (3, True)


def lock_without_image(folder: Path, **switches: bool) -> Path:
    """Write a lockfile that holds no image and these torch switches, and return its path."""
    path = folder / "x.lock.toml"
    sample = samples.lock()
    determinism = dataclasses.replace(sample.determinism, torch=tuple(switches.items()))
    lockstore.write(path, dataclasses.replace(sample, image=None, determinism=determinism))
    return path


def test_without_an_image_in_the_lockfile_the_run_says_what_to_do(tmp_path: Path) -> None:
    """Nothing is run in some other image by guessing."""
    ended = program.envlock("canary", "run", "-l", lock_without_image(tmp_path))

    assert ended.code == 3
    assert ended.err.startswith("error: sample: the lockfile holds no image")
    assert "run `envlock build` first" in ended.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--env", "MKL_CBWR"), "--env: not a variable: 'MKL_CBWR'"),
        (("--env", "A-B=1"), "--env: not a variable: 'A-B=1'"),
        (("--flip", "weight"), "--flip: not a weight and a bit: 'weight'"),
        (("--host", "--image", "x"), "canary run: --host and --image exclude each other"),
        (("--host", "--runs", "0"), "0 is not in the range"),
    ],
)
def test_wrong_use_is_exit_2(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    """Each mistake on the command line has its own message."""
    ended = program.envlock("canary", "run", "-l", lock_without_image(tmp_path), *arguments)

    assert ended.code == 2
    assert message in ended.err


def test_a_comparison_fits_its_schema(tmp_path: Path) -> None:
    """Every key of the document is described, and nothing else is in it."""
    a = written(tmp_path, "a.json", made_reports.report())
    other = made_reports.with_outputs(
        made_reports.report(), t3__encoder__002__softmax=[0.25, 0.5], t2__s1__mantissa__mm="7"
    )
    b = written(tmp_path, "b.json", made_reports.with_settings(other, threads="1"))
    schema = Path(__file__).parents[2] / "docs/schema/canary-comparison.schema.json"

    jsonschema.validate(
        program.envlock("canary", "compare", a, b, "--format", "json").document, json.loads(schema.read_text("utf-8"))
    )


def test_a_switch_that_does_not_exist_is_exit_2_before_anything_runs(tmp_path: Path) -> None:
    """The lockfile is at fault, and the nearest switch is named."""
    ended = program.envlock("canary", "run", "--host", "-l", lock_without_image(tmp_path, deterministic=True))

    assert ended.code == 2
    assert "error: sample: unknown torch switch 'deterministic', at `determinism.torch.deterministic`" in ended.err


@pytest.mark.engine
def test_an_image_without_torch_could_not_tell(tmp_path: Path, python_image: str) -> None:
    """The whole way through a real container: the reason comes back in the frame, exit 3."""
    ended = program.envlock(
        "canary",
        "run",
        "-l",
        lock_without_image(tmp_path),
        "--image",
        python_image,
        "--backend",
        "cpu",
        env=program.engine_environment(),
    )

    assert ended.code == 3, ended.err
    assert "torch cannot be imported: No module named 'torch'" in ended.out


def test_a_gpu_for_a_canary_on_the_cpu_is_exit_2(tmp_path: Path) -> None:
    """`--device` would be ignored in silence."""
    path = lock_without_image(tmp_path)
    ended = program.envlock("canary", "run", "-l", path, "--host", "--backend", "cpu", "--device", "0")

    assert ended.code == 2
    assert ended.err == "error: `--device` names a GPU, and the canary runs on the CPU\n\nhint: add `--backend cuda`\n"


def test_a_report_with_a_fault_is_not_recorded(tmp_path: Path) -> None:
    """Refused as `canary run --record` refuses, and the lockfile stays what it was."""
    path = lock_without_image(tmp_path)
    before = path.read_bytes()
    report = written(tmp_path, "r.json", made_reports.report(problems=["t3.encoder: raised RuntimeError"]))
    ended = program.envlock("canary", "record", report, "-l", path)

    assert ended.code == 1
    assert "error: not recorded: t3.encoder: raised RuntimeError" in ended.err
    assert path.read_bytes() == before


@pytest.mark.torch
def test_what_a_bare_machine_computed_becomes_a_golden_that_holds(tmp_path: Path) -> None:
    """The report of `make gpu-check` is recorded, and a run under the lockfile then matches it."""
    path = tmp_path / "x.lock.toml"
    strict = determinism_of(specs.Determinism(profile="strict", threads=canaries.THREADS, env=(), torch=()), "x")
    lockstore.write(path, dataclasses.replace(samples.lock(), image=None, goldens=(), determinism=strict))
    made = canaries.run(canaries.find_torch(), "cpu", 1, 1)
    recorded = program.envlock("canary", "record", written(tmp_path, "r.json", made), "-l", path)
    checked = program.envlock("canary", "run", "--host", "--backend", "cpu", "-l", path)

    assert recorded.code == 0, recorded.err
    assert "recorded a new golden: " in recorded.err
    assert checked.code == 0, checked.out
    assert checked.out.startswith("match: canary of sample")


@pytest.mark.engine
def test_an_engine_that_has_no_gpu_to_give_is_exit_3(tmp_path: Path, engine: Engine, python_image: str) -> None:
    """In its own words, with what its host needs; the canary does not run without."""
    if engine.info.name != "Docker" or Path("/dev/nvidiactl").exists():
        pytest.skip("Podman ignores what it cannot give, and a machine with a GPU gives it")
    arguments = ("--image", python_image, "--backend", "cuda", "--format", "json")
    path = lock_without_image(tmp_path)
    ended = program.envlock("canary", "run", "-l", path, *arguments, env=program.engine_environment())

    assert (ended.code, ended.document["error"]) == (3, "EngineError")
    assert "could not select device driver" in ended.document["message"]
    assert "nvidia-container-toolkit" in ended.document["hint"]
