"""The page in a real browser: Debian's chromium, driven by Playwright. Nothing is downloaded."""

# ruff: noqa: E402

import json
import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="FastAPI is not installed (pip install 'autofl-edge[explore]')")
playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("chromium is not installed (apt-get install chromium)", allow_module_level=True)

from autofl.cli.main import run as run_cli

PATIENCE = 120_000
"""Milliseconds for what a loaded machine does in one second."""
SLIDERS = ("num_ue", "radius", "max_energy", "max_power", "bandwidth", "epsilon", "bits", "local_steps", "num_selected")
READY = {"plan": "body[data-curves]", "watch": "body[data-watched]", "compare": "body[data-compared]"}


@pytest.fixture(scope="module")
def address(runs):
    """Of a server of its own, which ends with the tests and its runs with it."""
    words = [sys.executable, "-m", "autofl", "explore", str(runs), "--port", "0", "--no-browser"]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    yield server.stdout.readline().strip()
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) in (0, 143)


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as player:
        yield player.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


@contextmanager
def opened(browser, address, view="plan", width=1280, scheme="light", refused=False):
    """The page; at its end nothing was said on the console, but of a refusal, and nothing was asked from elsewhere."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, accept_downloads=True)
    page.set_default_timeout(PATIENCE)
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{address}#{view}")
    page.wait_for_selector(READY[view])
    yield page
    page.close()
    assert [text for text in said if not (refused and "status of 422" in text)] == []
    ours = address.partition("?")[0]
    assert [url for url in asked if not url.startswith((ours, "data:", "blob:"))] == []


def until(page, expression):
    """Wait until something is true; Playwright's own way would need eval, which the page's policy forbids."""
    for _ in range(PATIENCE // 100):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"never true: {expression}")


def planned(page, act):
    """The last answer of /api/plan to what is done, and what the page shows then."""
    before = int(page.evaluate("document.body.dataset.planned"))
    answers = []

    def keep(answer):
        answers.append(answer)

    page.on("response", keep)
    act()
    until(page, f"Number(document.body.dataset.planned) > {before}")
    until(page, "document.body.dataset.asking === 'false'")
    page.remove_listener("response", keep)
    return [answer for answer in answers if answer.url.endswith("/api/plan")][-1].json()


def saved(page, tmp_path):
    with page.expect_download() as download:
        page.click("#save")
    download.value.save_as(tmp_path / "cell.toml")
    return tmp_path / "cell.toml"


def assert_plans(path, plan, capsys):
    """`autofl plan` makes the plan of the page from a saved file; the page has six digits of each value of a UE."""
    capsys.readouterr()
    assert run_cli(["plan", str(path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    ues, shown = said.pop("ues"), dict(plan)
    for name, column in shown.pop("ues").items():
        assert column == [float(f"{ue[name]:.6g}") if isinstance(ue[name], float) else ue[name] for ue in ues]
    assert shown == said


def shown_round_time(page):
    number, unit = page.inner_text("#figures strong >> nth=0").split()
    return float(number) * {"s": 1.0, "ms": 1e-3, "µs": 1e-6}[unit]


def test_a_ue_is_dragged_and_the_saved_file_plans_the_same(browser, address, tmp_path, capsys):
    with opened(browser, address) as page:
        ue = page.locator('.ue[data-ue="4"]')
        before = float(re.search(r"Distance\s+([\d.]+) m", drop(page, ue)).group(1))
        box = page.locator("svg.cell").bounding_box()

        def drag():
            at = ue.locator(".disc").bounding_box()
            page.mouse.move(at["x"] + at["width"] / 2, at["y"] + at["height"] / 2)
            page.mouse.down()
            page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.8 * box["height"], steps=4)
            page.mouse.up()

        answer = planned(page, drag)
        after = float(re.search(r"Distance\s+([\d.]+) m", page.inner_text("#detail")).group(1))
        assert abs(after - before) > 20
        assert answer["plan"]["ues"]["distance"][4] == pytest.approx(after, rel=0.01)
        assert_plans(saved(page, tmp_path), answer["plan"], capsys)


def drop(page, ue):
    """Choose a UE by a click; what is said of it."""
    ue.locator(".disc").click()
    return page.inner_text("#detail")


def test_each_slider_gives_the_plan_of_the_saved_file(browser, address, tmp_path, capsys):
    with opened(browser, address) as page:
        for key in SLIDERS:
            word = "ArrowLeft" if key in ("bits", "max_energy") else "ArrowRight"
            step = {"bits": 1, "local_steps": 1, "num_selected": 40}.get(key, 12)
            shown = page.inner_text(f"#o-{key}")

            def move(key=key, word=word, step=step):
                page.focus(f"#s-{key}")
                for _ in range(step):
                    page.keyboard.press(word)

            answer = planned(page, move)
            assert page.inner_text(f"#o-{key}") != shown
            assert_plans(saved(page, tmp_path), answer["plan"], capsys)
            assert shown_round_time(page) == pytest.approx(answer["plan"]["round_time"], rel=0.01)


def test_a_planner_and_a_scenario_are_chosen(browser, address, tmp_path, capsys):
    with opened(browser, address) as page:
        answer = planned(page, lambda: page.select_option("#planner", "joint"))
        assert answer["plan"]["planner"] == "joint"
        assert page.is_disabled("#s-local_steps")
        answer = planned(page, lambda: page.select_option("#scenario", "umi-phones"))
        assert_plans(saved(page, tmp_path), answer["plan"], capsys)


def test_the_map_is_worked_by_keyboard(browser, address):
    with opened(browser, address) as page:
        page.focus('.ue[data-ue="0"]')
        page.keyboard.press("n")
        assert page.inner_text("#detail h2") == "UE 1"
        answer = planned(page, lambda: page.keyboard.press("Shift+ArrowUp"))
        assert answer["positions"][1][1] > 0
        page.keyboard.press("2")
        page.wait_for_selector("#view-watch:not([hidden])")


def test_a_change_that_is_refused_is_said_next_to_its_control_and_the_last_plan_is_greyed(browser, address):
    with opened(browser, address, refused=True) as page:
        page.focus("#s-num_ue")
        assert len(planned(page, lambda: page.keyboard.press("End"))["plan"]["ues"]["id"]) == 10_000
        planned(page, lambda: page.select_option("#scenario", "umi-phones"))
        page.select_option("#planner", "yang")
        page.wait_for_selector("#planner[aria-invalid]")
        assert "its formulas are those of link shannon" in page.inner_text("#planner-why")
        assert page.evaluate("getComputedStyle(document.querySelector('.mapcard')).opacity") == "0.45"
        planned(page, lambda: page.select_option("#planner", "joint"))
        assert page.locator("#planner-why, [aria-invalid]").count() == 0


def test_a_target_out_of_its_range_is_refused_and_never_replaced(browser, address):
    with opened(browser, address, "compare") as page:
        page.fill("#compare-target", "0")
        page.keyboard.press("Tab")
        assert "from 0.05 to 1" in page.inner_text("#compare-target-why")
        assert page.is_disabled("#to-csv")
        page.fill("#compare-target", "0.4")
        page.keyboard.press("Tab")
        until(page, "document.querySelector('#compare-table th:nth-child(2)').textContent.includes('40 %')")
        assert page.is_enabled("#to-csv")


def test_a_key_pressed_in_a_field_is_no_shortcut(browser, address):
    with opened(browser, address) as page:
        for control in ("#s-radius", "#target", "#planner"):
            page.focus(control)
            for key in "23ds":
                page.keyboard.press(key)
        assert page.is_visible("#view-plan")
        assert page.evaluate("document.documentElement.dataset.theme") is None


def test_a_picture_saved_from_a_narrow_page_has_its_whole_legend(browser, address):
    with opened(browser, address, "compare", 400) as page:
        width, longest = page.evaluate(
            """async () => {
                const { svgText } = await import("/static/chart.js");
                const name = "AutoFL, " + Array.from({ length: 9 }, (_, k) => `cell.setting = ${k}`).join(", ");
                const text = svgText(document.getElementById("compare-chart"), "accuracy", [{ name, colour: "red" }]);
                const box = document.createElement("div");
                box.innerHTML = text;
                document.body.append(box);
                const lines = [...box.querySelectorAll("svg > text")].map((line) => line.getBBox());
                const ends = lines.map((at) => at.x + at.width);
                const width = Number(box.firstChild.getAttribute("width"));
                box.remove();
                return [width, Math.max(...ends)];
            }"""
        )
        assert 200 < longest <= width


@pytest.mark.parametrize("target", ["0.05", "0.3", "0.85"])
def test_the_name_of_the_target_lies_on_no_curve(browser, address, target):
    with opened(browser, address, "compare") as page:
        page.fill("#compare-target", target)
        page.keyboard.press("Tab")
        until(page, f"document.querySelector('.level-name').textContent === 'target {100 * float(target):g} %'")
        name = page.locator("#compare-chart .level-name").bounding_box()
        curves = [curve.bounding_box() for curve in page.locator("#compare-chart .line").all()]
        assert len(curves) >= 2
        assert all(name["y"] + name["height"] <= curve["y"] for curve in curves)


def test_a_run_is_started_grows_is_paused_and_goes_on(browser, address):
    with opened(browser, address, "watch") as page:
        page.click("#new-run")
        page.fill("#rounds", "3000")
        page.fill("#every", "1")
        page.click("#start-form button[type=submit]")
        until(page, "document.body.dataset.status === 'running' && Number(document.body.dataset.watched) >= 2")
        first = int(page.evaluate("document.body.dataset.watched"))
        path = page.get_attribute("#watch-accuracy .line >> nth=0", "d")
        until(page, f"Number(document.body.dataset.watched) > {first}")
        assert len(page.get_attribute("#watch-accuracy .line >> nth=0", "d")) > len(path)
        page.click("[data-wish=pause]")
        until(page, "document.body.dataset.status === 'paused'")
        stopped = int(page.evaluate("document.body.dataset.watched"))
        page.click("[data-wish=resume]")
        until(page, f"Number(document.body.dataset.watched) > {stopped}")
        page.click("[data-wish=stop]")
        until(page, "document.body.dataset.status === 'stopped'")


def test_two_runs_are_compared_and_downloaded(browser, address, tmp_path):
    with opened(browser, address, "compare") as page:
        page.click("#choose-none")
        for name in ("autofl", "fedavg-2"):
            page.locator("#compare-list .item", has_text=f"finished · {name}").locator("input").check()
        until(page, "document.body.dataset.compared === '2'")
        assert page.locator("#compare-table tbody tr").count() == 2
        assert page.locator("#compare-chart .line").count() == 2
        page.select_option("#filter-key", "algorithm")
        page.select_option("#filter-value", "autofl")
        until(page, "document.body.dataset.compared === '1'")
        page.select_option("#filter-key", "")
        until(page, "document.body.dataset.compared === '2'")
        files = {}
        for kind in ("csv", "svg", "png"):
            with page.expect_download() as download:
                page.click(f"#to-{kind}")
            files[kind] = tmp_path / f"runs.{kind}"
            download.value.save_as(files[kind])
        assert len(files["csv"].read_text().splitlines()) == 3
        assert files["svg"].read_text().count("<path") >= 2
        assert files["png"].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("view", READY)
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (400, "light"), (400, "dark")])
def test_axe_finds_nothing_serious_at_any_width_and_theme(browser, address, view, width, scheme):
    axe = pytest.importorskip("axe_playwright_python")
    script = (Path(axe.__file__).parent / "axe.min.js").read_text()
    with opened(browser, address, view, width, scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.evaluate(script)  # past the page's policy, which loads nothing from elsewhere
        result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        grave = [
            (rule["id"], rule["nodes"][0]["html"][:200], rule["nodes"][0]["failureSummary"])
            for rule in result["violations"]
            if rule["impact"] in ("serious", "critical")
        ]
        assert grave == []


def test_the_first_paint_is_quick_and_the_page_small(browser, address):
    paints, sizes = [], []
    for _ in range(3):
        with opened(browser, address) as page:
            paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
            sizes.append(
                page.evaluate(
                    "performance.getEntries().filter((e) => ['navigation', 'resource'].includes(e.entryType))"
                    ".reduce((sum, e) => sum + e.transferSize, 0)"
                )
            )
    print(f"first paint {min(paints):.0f} ms, {max(sizes)} bytes")
    assert min(paints) < 500
    assert 20_000 < max(sizes) < 1_000_000
