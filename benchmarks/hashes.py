"""requirements.txt with the sha256 of every file that pip would install here, for `pip install --require-hashes`.

    python benchmarks/hashes.py demo,flower > requirements.txt
    pip install --require-hashes -r requirements.txt && pip install --no-deps --no-build-isolation .

What builds our own package is in the list, so that nothing is fetched unchecked. Versions are those of constraints.txt.
The files are those of this platform and Python, from the index that pip is configured with: make it on the kind of
machine it is for, once, where you trust the index; later installs check.
"""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def hashed(report: dict) -> list[str]:
    """A line for each file of a pip report; our own package has none."""
    lines = []
    for entry in report["install"]:
        about, sums = entry["metadata"], entry["download_info"].get("archive_info", {}).get("hashes", {})
        if entry["download_info"].get("dir_info") is None:
            lines.append(f"{about['name']}=={about['version']} --hash=sha256:{sums['sha256']}")
    return sorted(lines, key=str.lower)


if __name__ == "__main__":
    wanted = f"{ROOT}[{sys.argv[1]}]" if len(sys.argv) > 1 else str(ROOT)
    words = ["install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    builds = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    words += ["-c", str(ROOT / "constraints.txt"), wanted, *builds]
    made = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True)
    if made.returncode:
        sys.exit(made.stderr)
    print("\n".join(hashed(json.loads(made.stdout))))
