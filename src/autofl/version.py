"""Which AutoFL this is."""

import subprocess
from pathlib import Path

__version__ = "0.1.0"


def commit_of_source() -> str | None:
    """The commit of the source tree, where there is one."""
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=5,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None
