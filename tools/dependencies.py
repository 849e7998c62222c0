"""Installs the dependencies of some extras, every file checked by its sha256 in hashes.txt, and
rewrites that file.

    python tools/dependencies.py install demo,dev    into the environment of this Python; our own
    package is not in it
    python tools/dependencies.py lock                rewrites hashes.txt and constraints.txt for all
    extras
    python tools/dependencies.py flower FOLDER       the other version of Flower that we support,
    alone, into a folder

hashes.txt lists every file that the public package index has of each version in constraints.txt,
for all platforms, and by whom it is needed. So an install looks up what the extras need and hands
just that to pip, which refuses all other files. Nothing is built: what builds a package would be
fetched unchecked.
"""

import argparse
import importlib
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
OLDEST_PYTHON = "3.11.5"  # pymdown-extensions, of the extra docs, wants no older one
EDITABLES = "editables"  # hatchling asks for it only when it installs in editable mode
UV = "uv"  # finds one version of everything for all platforms
CPU_TORCH = {
    (
        "2.13.0",
        "cp311",
        "x86_64",
    ): "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b",
    (
        "2.13.0",
        "cp312",
        "x86_64",
    ): "4ca4a9394b0c771238a4f73590fdbbc4debad85ed0fa63d026ae1b085da7d6e2",
    (
        "2.13.0",
        "cp313",
        "x86_64",
    ): "3fbf9c9d1f3c10c2d59d04aca426dee9ccc6ceb32d255c61e93acc3b4f75fae6",
    (
        "2.13.0",
        "cp311",
        "aarch64",
    ): "84453b69508ec79902f899c5ed9495acb9e2bbe9fda5f1d5d6f19e3c3842e1a7",
    (
        "2.13.0",
        "cp312",
        "aarch64",
    ): "6f307c2c32d764ffc6ff6893b801fad6d4752f3e67966cb8abf1843427c02604",
    (
        "2.13.0",
        "cp313",
        "aarch64",
    ): "0b8f7d0423027ae8b90c7977c627f3379f325363a08224dffad9b4b2d684a83d",
}
"""PyTorch's own builds without CUDA for Linux,
torch-VERSION+cpu-PYTHON-PYTHON-manylinux_2_28_MACHINE.whl, which the public index does not list.
The first was computed from the file. The others were copied from public repositories that install
from PyTorch's index; we could not reach that index to compare.
"""
OTHER_FLOWER = ("1.42.0", "c4e77a528ff1ba93b57c9bb8d04af3f14884f0c9a6f4325bd974f1f807510732")
"""The version of Flower that `make flower` tests besides the one in constraints.txt, and the sha256
of its wheel.

It asks for certifi>=2026.10.19, which the index did not have when we locked: so it cannot be the
one in the list yet.
"""
CONSTRAINTS_HEAD = (
    "# One tested set of versions for make and CI; the package's own requirements in pyproject.toml are ranges.\n"
    "# Change a version here, or remove its line for the newest, then run `make hashes`.\n"
)
HASHES_HEAD = "# Written by `make hashes`: every file of each version in constraints.txt, and by whom it is needed.\n"


@dataclass(frozen=True)
class Pin:
    name: str
    version: str
    marker: str  # where it is needed, such as sys_platform == 'win32'; empty: everywhere
    hashes: frozenset[str]
    parents: frozenset[str]  # the packages that need it

    def __str__(self) -> str:
        """Its lines in a requirements file."""
        first = f"{self.name}=={self.version}" + (f" ; {self.marker}" if self.marker else "")
        lines = " \\\n".join(
            [first, *(f"    --hash=sha256:{sha256}" for sha256 in sorted(self.hashes))]
        )
        return f"{lines}\n" + (
            f"    # via {', '.join(sorted(self.parents))}\n" if self.parents else ""
        )


def canonical(requirement: str) -> str:
    """The name in a requirement, spelled as the package index spells it."""
    (name,) = re.findall(r"^\s*([\w.-]+)", requirement)
    return re.sub(r"[-_.]+", "-", name).lower()


def read_pins(text: str) -> dict[str, Pin]:
    """The pins of a requirements file in which comments `# via` name parents, by name."""
    pins: dict[str, Pin] = {}
    for block in re.findall(r"^\w.*\n(?:[ #].*\n)*", f"{text}\n", flags=re.MULTILINE):
        head = re.match(r"([\w.-]+)==([^\s;\\]+)(?: *;([^\\\n]*))?", block)
        if head is None:
            raise SystemExit(f"not a pinned version: {block.splitlines()[0]}")
        name, version, marker = head.groups()
        if canonical(name) in pins:
            raise SystemExit(
                f"{name} has two versions: one line in constraints.txt must do for all platforms"
            )
        via = [word for line in re.findall(r"# via (.*)", block) for word in line.split(", ")]
        parents = frozenset(
            canonical(word) for word in via if re.fullmatch(r"[\w.-]+", word) and word[0] != "-"
        )
        hashes = frozenset(re.findall(r"--hash=sha256:([0-9a-f]{64})\b", block))
        pins[canonical(name)] = Pin(
            canonical(name), version, (marker or "").strip(), hashes, parents
        )
    return pins


def required(pyproject: Mapping, extras: Iterable[str]) -> set[str]:
    """The names that our package with these extras asks for itself, with what builds it."""
    project = pyproject["project"]
    optional = project["optional-dependencies"]
    requirements = [*project["dependencies"], *pyproject["build-system"]["requires"], EDITABLES]
    waiting, seen = list(extras), set()
    while waiting:
        extra = waiting.pop()
        if extra not in optional:
            raise SystemExit(f"no extra {extra!r}; there are {', '.join(sorted(optional))}")
        if extra in seen:
            continue
        seen.add(extra)
        for requirement in optional[extra]:
            if canonical(requirement) == project["name"]:  # as in autofl-edge[solver]
                waiting += re.findall(r"[\w-]+", requirement.partition("[")[2].partition("]")[0])
            else:
                requirements.append(requirement)
    return {canonical(requirement) for requirement in requirements}


def closure(
    pins: Mapping[str, Pin], names: Iterable[str], unneeded: Iterable[str] = ()
) -> list[Pin]:
    """The pins of these names and of all that they need in turn, less what is needed only through
    `unneeded`.
    """
    reached: set[str] = set()
    waiting = set(names)
    if missing := sorted(waiting - pins.keys()):
        raise SystemExit(
            f"hashes.txt lacks {', '.join(missing)}, which pyproject.toml asks for: run `make hashes`"
        )
    while waiting:
        reached |= waiting
        waiting = (
            {name for name, pin in pins.items() if pin.parents & waiting} - reached - set(unneeded)
        )
    return [pin for name, pin in pins.items() if name in reached]


def pip_install(pins: Iterable[Pin], *options: str) -> subprocess.CompletedProcess[str]:
    """Has pip install these pins, and nothing whose sha256 is not in them; says how that ended."""
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "requirements.txt"
        listed.write_text("".join(map(str, pins)), encoding="utf-8")
        words = [
            "--disable-pip-version-check",
            "--require-hashes",
            "--only-binary",
            ":all:",
            "--no-deps",
            *options,
        ]
        command = [sys.executable, "-m", "pip", "install", *words, "-r", str(listed)]
        return subprocess.run(command, stderr=subprocess.PIPE, text=True)


def insist(ended: subprocess.CompletedProcess[str]) -> None:
    sys.stderr.write(ended.stderr)
    if ended.returncode:
        raise SystemExit(
            "pip refused; SECURITY.md says what to do about a file that hashes.txt does not list"
        )


def install_torch(torch: Pin) -> set[str]:
    """Installs PyTorch, without CUDA where pip finds such a build, and returns what this build
    needs.

    Note: of two files pip prefers the one whose sha256 it knows before downloading. That is never a
    file in a folder, so the build without CUDA must be asked for by its version.
    """
    ended = pip_install([replace(torch, version=f"{torch.version}+cpu")])
    if ended.returncode and "No matching distribution" in ended.stderr:
        ended = pip_install([torch])
    insist(ended)
    importlib.invalidate_caches()
    return {canonical(requirement) for requirement in metadata.requires("torch") or []}


def install(pins: Mapping[str, Pin], pyproject: Mapping, extras: Iterable[str]) -> None:
    """Installs what these extras need. PyTorch comes first: only its metadata tells if this build
    needs CUDA.
    """
    names = required(pyproject, extras)
    closure(pins, names)  # a name without a hash is told before anything is installed
    needs = install_torch(pins["torch"])
    unneeded = {name for name, pin in pins.items() if pin.parents == {"torch"}} - needs
    insist(pip_install(pin for pin in closure(pins, names, unneeded) if pin.name != "torch"))
    if subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "check"]
    ).returncode:
        raise SystemExit("hashes.txt does not fit together: run `make hashes`")


def resolved(pins: Mapping[str, Pin], pyproject: Mapping) -> dict[str, Pin]:
    """One version of everything, for all extras, platforms and Pythons, with the hashes of all its
    files.
    """
    with tempfile.TemporaryDirectory() as folder:
        insist(pip_install([pins[UV]], "--quiet", "--target", folder))
        words = f"pip compile pyproject.toml - --all-extras --universal --python-version {OLDEST_PYTHON} -c constraints.txt"
        words += " --generate-hashes --annotation-style line --no-config --quiet"
        more = "\n".join([*pyproject["build-system"]["requires"], EDITABLES, UV])
        command = [f"{folder}/bin/uv", *words.split()]
        compiled = subprocess.run(command, cwd=ROOT, input=more, capture_output=True, text=True)
    if compiled.returncode:
        raise SystemExit(compiled.stderr)
    return read_pins(compiled.stdout)


def lock(pins: Mapping[str, Pin], pyproject: Mapping) -> None:
    """Rewrites hashes.txt and constraints.txt."""
    pins = resolved(pins, pyproject)
    torch = pins["torch"]
    builds = {sha256 for (version, *_), sha256 in CPU_TORCH.items() if version == torch.version}
    if not builds:
        raise SystemExit(
            f"tools/dependencies.py has no hash of torch {torch.version}+cpu: fill in CPU_TORCH"
        )
    pins["torch"] = replace(torch, hashes=torch.hashes | builds)
    (ROOT / "hashes.txt").write_text(
        HASHES_HEAD + "".join(map(str, pins.values())), encoding="utf-8"
    )
    lines = "".join(f"{pin.name}=={pin.version}\n" for pin in pins.values())
    (ROOT / "constraints.txt").write_text(CONSTRAINTS_HEAD + lines, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("install").add_argument(
        "extras", nargs="?", default="", help="such as demo,dev"
    )
    commands.add_parser("lock")
    commands.add_parser("flower").add_argument("folder")
    arguments = parser.parse_args()
    try:
        pins = read_pins((ROOT / "hashes.txt").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SystemExit(
            f"hashes.txt cannot be read ({error}); git checkout hashes.txt brings it back"
        ) from None
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    if arguments.command == "lock":
        lock(pins, pyproject)
    elif arguments.command == "flower":
        other, sha256 = OTHER_FLOWER
        pin = replace(pins["flwr"], version=other, hashes=frozenset({sha256}))
        insist(pip_install([pin], "--quiet", "--upgrade", "--target", arguments.folder))
    else:
        install(pins, pyproject, [extra for extra in arguments.extras.split(",") if extra])


if __name__ == "__main__":
    main()
