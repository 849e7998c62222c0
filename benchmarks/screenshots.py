"""Pictures of the explorer for README and docs, drawn by chromium from real runs: make screenshots."""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).parents[1] / "docs" / "images"
READY = {
    "plan": "body[data-curves]",
    "watch": "body[data-watched]",
    "compare": "body[data-compared]",
}
PICTURES = [
    ("explore-plan", "plan", 1280, 1130, "light"),
    ("explore-plan-dark", "plan", 1280, 1130, "dark"),
    ("explore-watch", "watch", 1280, 900, "light"),
    ("explore-compare", "compare", 1280, 1000, "light"),
    ("explore-phone", "plan", 400, 860, "dark"),
]


def make_runs(folder: Path) -> None:
    """A comparison of four algorithms, two seeds each."""
    words = ["compare", "--seeds", "2", "--out", str(folder / "demo")]
    for setting in ("stop.rounds=80", "evaluation.every=2"):
        words += ["--set", setting]
    subprocess.run([sys.executable, "-m", "autofl", *words], check=True)


def set_slider(page: Page, key: str, position: int) -> None:
    page.eval_on_selector(
        f"#s-{key}",
        "(input, value) => { input.value = value; input.dispatchEvent(new Event('input')); }",
        position,
    )


def draw(page: Page, view: str) -> None:
    """Bring a view into a state worth a picture."""
    page.wait_for_selector(READY[view])
    if view == "plan":  # a cell in which not the same thing binds everybody
        for key, position in (
            ("num_ue", 64),
            ("radius", 150),
            ("max_energy", 96),
            ("max_power", 66),
        ):
            set_slider(page, key, position)
        page.wait_for_selector('body[data-asking="false"] .three:not(.stale)')
        page.evaluate(
            "document.querySelector('.ue[data-ue=\"0\"]').dispatchEvent(new MouseEvent('click'))"
        )
    page.wait_for_timeout(1500)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--runs",
        type=Path,
        help="folder of runs to show; default: some are made, which takes a minute",
    )
    parser.add_argument(
        "--only", nargs="*", default=[picture[0] for picture in PICTURES], help="names of pictures"
    )
    parser.add_argument("--out", type=Path, default=IMAGES)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, sync_playwright() as player:
        runs = given.runs or Path(place)
        if given.runs is None:
            make_runs(runs)
        words = [
            sys.executable,
            "-m",
            "autofl",
            "explore",
            str(runs),
            "--port",
            "0",
            "--no-browser",
        ]
        server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        browser = player.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        try:
            for name, view, width, height, scheme in (
                one for one in PICTURES if one[0] in given.only
            ):
                page = browser.new_page(
                    viewport={"width": width, "height": height}, color_scheme=scheme
                )
                page.set_default_timeout(120_000)
                page.goto(f"{address}#{view}")
                draw(page, view)
                page.screenshot(path=given.out / f"{name}.png")
                page.close()
                print(given.out / f"{name}.png")
        finally:
            browser.close()
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
