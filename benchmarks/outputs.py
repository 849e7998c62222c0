"""What four commands say in JSON of five settings, kept to see that a change of form is only that.

python benchmarks/outputs.py            compares with what is kept in tests/reference/outputs
python benchmarks/outputs.py --record   keeps what is said now
"""

import argparse
import contextlib
import io
import json
import re
import sys
import tempfile
from pathlib import Path

from same_bytes import fingerprint

from autofl.cli import main as autofl

SETTINGS = Path(__file__).parents[1] / "tests" / "reference" / "outputs"
NAMES = ("paper", "phones", "spread", "others", "liars")
MEASURED = {"host_time", "cpu_time", "runs", "folder", "out", "tables", "pictures", "page"}
"""What differs from machine to machine, from folder to folder."""


def said(*words: str) -> object:
    """What a command prints with --json."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        sys.argv = ["autofl", "--quiet", *words, "--json"]
        autofl()
    return lasting(json.loads(printed.getvalue()))


def lasting(value: object) -> object:
    """A value without what is measured or names a place; a run's name ends in a hash of the text of
    its settings.
    """
    if isinstance(value, dict):
        return {key: lasting(inner) for key, inner in value.items() if key not in MEASURED}
    if isinstance(value, list):
        return [lasting(inner) for inner in value]
    return re.sub(r"(-seed\d+)-[0-9a-f]{12}$", r"\1", value) if isinstance(value, str) else value


def settings_of(name: str) -> list[str]:
    """The words of a command that name the settings: their file, and the scenario that a comment in
    it names.
    """
    path = SETTINGS / f"{name}.toml"
    words = [str(path)]
    for line in path.read_text().splitlines():
        if line.startswith("# scenario: "):
            words += ["--scenario", line.removeprefix("# scenario: ")]
    return words


def planned(name: str, folder: Path) -> dict[str, object]:
    """The two commands that train nothing."""
    over = ("--plan", "--over", "cell.max_power=0.005,0.01", "--out", str(folder / f"{name}-sweep"))
    return {
        "plan": said("plan", *settings_of(name)),
        "sweep": said("sweep", *settings_of(name), *over),
    }


def outputs(name: str, folder: Path) -> dict[str, object]:
    """All four commands with these settings; the runs go into the folder."""
    out = str(folder / name)
    return {
        **planned(name, folder),
        "compare": said(
            "compare", *settings_of(name), "--seeds", "1", "--workers", "1", "--out", out
        ),
        "report": said("report", out, "--target", "0.6"),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", action="store_true")
    record = parser.parse_args().record
    differ = []
    with tempfile.TemporaryDirectory() as folder:
        for name in NAMES:
            now = outputs(name, Path(folder))
            kept = SETTINGS / f"{name}.json"
            if record:
                kept.write_text(json.dumps({"machine": fingerprint(), **now}, indent=1) + "\n")
            else:
                before = lasting(json.loads(kept.read_text()))
                differ += [
                    f"{name}: {command}" for command in now if now[command] != before[command]
                ]
            print(name, "recorded" if record else "compared", flush=True)
    print("different:", ", ".join(differ) or "nothing")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
