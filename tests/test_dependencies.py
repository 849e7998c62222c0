"""Only files with a known sha256 are installed, and the list of them covers what pyproject.toml
asks for.
"""

import hashlib
import re
import shlex
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from autofl.cli.main import run as run_cli
from autofl.errors import AutoFLError
from autofl.report.tracking import track

pytest.importorskip("pip", reason="needs pip")

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from dependencies import (  # noqa: E402
    CPU_TORCH,
    OTHER_FLOWER,
    Pin,
    closure,
    insist,
    install_torch,
    pip_install,
    read_pins,
    required,
)

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
PINS = read_pins((ROOT / "hashes.txt").read_text(encoding="utf-8"))


def names(pins: list[Pin]) -> set[str]:
    return {pin.name for pin in pins}


def pin(name: str, version: str = "1", sha256: str = "", parents: tuple[str, ...] = ()) -> Pin:
    return Pin(name, version, "", frozenset({sha256} - {""}), frozenset(parents))


def make_wheel(folder: Path, name: str, version: str) -> str:
    """Writes an empty package as a wheel into a folder; returns the sha256 of the file."""
    path, about = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(
            f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{about}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def flipped(sha256: str) -> str:
    return f"{sha256[:-1]}{int(sha256[-1], 16) ^ 1:x}"


@pytest.fixture
def target(tmp_path, monkeypatch) -> Path:
    """Where pip installs; it knows no index, only the wheels in the folder of the test."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "installed"))
    return tmp_path / "installed"


def test_both_lists_have_the_same_names_and_versions():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    plain = [line for line in lines if not line.startswith("#")]
    assert plain == [f"{pin.name}=={pin.version}" for pin in PINS.values()]


def test_every_version_has_a_hash_and_every_hash_is_read():
    assert all(pin.hashes for pin in PINS.values())
    text = (ROOT / "hashes.txt").read_text(encoding="utf-8")
    assert text.count("--hash=sha256:") == sum(len(pin.hashes) for pin in PINS.values())


def test_the_list_is_written_as_it_is_read():
    text = (ROOT / "hashes.txt").read_text(encoding="utf-8")
    assert text.partition("\n")[2] == "".join(map(str, PINS.values()))


@pytest.mark.parametrize("extra", EXTRAS)
def test_every_requirement_of_an_extra_is_in_the_list(extra):
    asked = {re.split(r"[^\w-]", line)[0] for line in EXTRAS[extra]} - {
        PYPROJECT["project"]["name"]
    }
    assert asked | {"torch", "numpy", "hatchling"} <= names(
        closure(PINS, required(PYPROJECT, [extra]))
    )


def test_versions_are_in_the_ranges_of_pyproject():
    requirements = pytest.importorskip("packaging.requirements", reason="needs the extra dev")
    lines = [*PYPROJECT["project"]["dependencies"], *PYPROJECT["build-system"]["requires"]]
    lines += [line for extra in EXTRAS.values() for line in extra]
    wanted = [requirements.Requirement(line) for line in lines]
    wrong = [
        str(one)
        for one in wanted
        if one.name in PINS and PINS[one.name].version not in one.specifier
    ]
    assert not wrong


def test_an_extra_brings_what_it_needs_and_nothing_of_the_others():
    assert "clarabel" in names(
        closure(PINS, required(PYPROJECT, ["dev"]))
    )  # dev asks for autofl-edge[solver]
    assert {"flwr", "ray", "mlflow"}.isdisjoint(
        names(closure(PINS, required(PYPROJECT, ["demo", "dev"])))
    )
    assert {"flwr", "dp-accounting", "mpmath"} <= names(
        closure(PINS, required(PYPROJECT, ["flower"]))
    )


def test_an_unknown_extra_and_a_requirement_without_hashes_are_told():
    with pytest.raises(SystemExit, match="no extra 'demp'; there are browser, demo"):
        required(PYPROJECT, ["demp"])
    with pytest.raises(SystemExit, match="lacks numpy, which"):
        closure({"scipy": pin("scipy")}, ["numpy", "scipy"])


def test_both_supported_versions_of_flower_are_named():
    requirements = pytest.importorskip("packaging.requirements", reason="needs the extra dev")
    asked = requirements.Requirement(EXTRAS["flower"][0])
    assert asked.name == "flwr"
    minors = [one.rpartition(".")[0] for one in (PINS["flwr"].version, OTHER_FLOWER[0])]
    assert [
        minor
        for minor in ("1.40", "1.41", "1.42", "1.43")
        if asked.specifier.contains(f"{minor}.0")
    ] == minors
    assert f"Flower {' and '.join(minors)} are supported" in (
        ROOT / "docs" / "deployment.md"
    ).read_text(encoding="utf-8")


def test_the_readme_asks_for_the_tested_torch_without_cuda():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (asked,) = set(re.findall(r"torch==([\d.]+)\+cpu", text))
    assert asked == PINS["torch"].version
    (index,) = set(re.findall(r"https://download\.[^\s`]+", text))
    assert f"TORCH_INDEX={index}\n" in (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_what_only_the_unneeded_need_is_left_out():
    """On paper: torch -> cuda -> driver, torch -> filelock, and fast -> driver."""
    pins = {
        "torch": pin("torch"),
        "fast": pin("fast"),
        "filelock": pin("filelock", parents=("torch",)),
        "cuda": pin("cuda", parents=("torch",)),
        "driver": pin("driver", parents=("cuda", "fast")),
    }
    assert names(closure(pins, ["torch"])) == {"torch", "filelock", "cuda", "driver"}
    assert names(closure(pins, ["torch"], {"cuda"})) == {"torch", "filelock"}
    assert names(closure(pins, ["torch", "fast"], {"cuda"})) == {
        "torch",
        "fast",
        "filelock",
        "driver",
    }


def test_builds_of_torch_without_cuda_are_of_its_version_and_in_the_list():
    assert {
        sha256 for (version, *_), sha256 in CPU_TORCH.items() if version == PINS["torch"].version
    }
    assert PINS["torch"].hashes >= set(CPU_TORCH.values())


@pytest.mark.slow
def test_a_file_with_its_hash_is_installed_and_one_flipped_digit_is_refused(tmp_path, target):
    sha256 = make_wheel(tmp_path, "tiny", "1")
    refused = pip_install([pin("tiny", "1", flipped(sha256))])
    assert refused.returncode
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in refused.stderr
    assert not target.exists()
    with pytest.raises(SystemExit, match="pip refused"):
        insist(refused)
    insist(pip_install([pin("tiny", "1", sha256)]))
    assert (target / "tiny-1.dist-info").is_dir()


def test_a_file_without_a_hash_is_refused(tmp_path, target):
    make_wheel(tmp_path, "tiny", "1")
    refused = pip_install([pin("tiny")])
    assert refused.returncode
    assert "Hashes are required in --require-hashes mode" in refused.stderr


@pytest.mark.slow
def test_torch_without_cuda_is_preferred_but_never_unchecked(tmp_path, target):
    plain = make_wheel(tmp_path, "torch", "9.9")
    install_torch(pin("torch", "9.9", plain))
    assert (target / "torch-9.9.dist-info").is_dir()
    cpu = make_wheel(tmp_path, "torch", "9.9+cpu")
    with pytest.raises(SystemExit, match="pip refused"):
        install_torch(Pin("torch", "9.9", "", frozenset({plain, flipped(cpu)}), frozenset()))
    assert not (target / "torch-9.9+cpu.dist-info").exists()
    install_torch(Pin("torch", "9.9", "", frozenset({plain, cpu}), frozenset()))
    assert (target / "torch-9.9+cpu.dist-info").is_dir()


@pytest.mark.parametrize("name", ["Makefile", "Dockerfile"])
def test_make_and_the_image_install_nothing_past_the_list(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    installs = re.findall(r"pip install .*", text)
    assert "tools/dependencies.py install" in text
    assert installs
    assert all("--no-deps --no-build-isolation" in line for line in installs)


@pytest.mark.parametrize(
    ("extra", "module", "command"),
    [
        ("flower", "flwr", "deploy status"),
        ("ray", "ray", "compare --ray local --set stop.rounds=1 --out runs"),
        ("explore", "uvicorn", "explore runs --port 0 --no-browser"),
        ("demo", "mlxtend", "data draw --out partition"),
        ("demo", "mlxtend", "data"),
    ],
)
def test_without_an_extra_a_command_says_how_to_install_it_in_a_clone(
    extra, module, command, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    monkeypatch.setenv("COLUMNS", "200")  # a table must not break the command
    run_cli(shlex.split(command))
    said = " ".join("".join(capsys.readouterr()).split())
    (told,) = set(re.findall(r"make (\w+) EXTRAS=([\w,]+)", said))
    assert told == ("setup", f"demo,dev,{extra}" if extra != "demo" else "demo,dev")
    assert set(told[1].split(",")) <= EXTRAS.keys()


def test_without_mlflow_one_line_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow.entities", None)
    with pytest.raises(AutoFLError, match="make setup EXTRAS=demo,dev,mlflow"):
        track([], "sqlite:///runs.db")


def test_no_message_names_the_package_as_if_an_index_had_it():
    name = PYPROJECT["project"]["name"]
    sources = sorted((ROOT / "src").rglob("*.py"))
    assert len(sources) > 100
    assert not [str(path) for path in sources if name in path.read_text(encoding="utf-8")]
