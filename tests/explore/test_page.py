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

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="needs the extra explore")
playwright = pytest.importorskip("playwright.sync_api", reason="needs the extra browser")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("chromium is not installed (apt-get install chromium)", allow_module_level=True)

from PIL import Image

from autofl.cli.main import run as run_cli

pytestmark = pytest.mark.slow

PATIENCE = 600_000
"""Milliseconds for what a loaded machine does in one second."""
SLIDERS = (
    "num_ue",
    "radius",
    "max_energy",
    "max_power",
    "bandwidth",
    "epsilon",
    "bits",
    "local_steps",
    "num_selected",
)
READY = {
    "plan": "body[data-curves]",
    "watch": "body[data-watched]",
    "compare": "body[data-compared]",
}


@pytest.fixture(scope="module")
def address(runs):
    """Of a server of its own, which ends with the tests and its runs with it."""
    words = [sys.executable, "-m", "autofl", "explore", str(runs), "--port", "0", "--no-browser"]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    yield server.stdout.readline().strip()
    server.send_signal(signal.SIGTERM)
    assert server.wait(PATIENCE / 1000) in (0, 143)


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as player:
        launched = player.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@contextmanager
def opened(browser, address, view="plan", width=1280, scheme="light", refused=False):
    """The page; at its end nothing was said on the console, but of a refusal, and nothing was asked
    from elsewhere.
    """
    page = browser.new_page(
        viewport={"width": width, "height": 900}, color_scheme=scheme, accept_downloads=True
    )
    page.set_default_timeout(PATIENCE)
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{address}#{view}")
    try:
        page.wait_for_selector(READY[view])
        yield page
    finally:
        # also after a failure: what it asked for would keep the server from later tests
        page.close()
    assert [text for text in said if not (refused and "status of 422" in text)] == []
    ours = address.partition("?")[0]
    assert [url for url in asked if not url.startswith((ours, "data:", "blob:"))] == []


def until(page, expression):
    """Wait until something is true; Playwright's own way would need eval, which the page's policy
    forbids.
    """
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


def said_by_plan(path, capsys):
    capsys.readouterr()
    assert run_cli(["plan", str(path), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def assert_plans(path, plan, capsys):
    """`autofl plan` makes the plan of the page from a saved file; the page has six digits of each
    value of a UE.
    """
    said = said_by_plan(path, capsys)
    ues, shown = said.pop("ues"), dict(plan)
    for name, column in shown.pop("ues").items():
        assert column == [
            float(f"{ue[name]:.6g}") if isinstance(ue[name], float) else ue[name] for ue in ues
        ]
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
            shown = page.input_value(f"#n-{key}")

            def move(key=key, word=word, step=step):
                page.focus(f"#s-{key}")
                for _ in range(step):
                    page.keyboard.press(word)

            answer = planned(page, move)
            assert page.input_value(f"#n-{key}") != shown
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


def test_a_change_that_is_refused_is_said_next_to_its_control_and_the_last_plan_is_greyed(
    browser, address
):
    with opened(browser, address, refused=True) as page:
        page.focus("#s-num_ue")
        assert len(planned(page, lambda: page.keyboard.press("End"))["plan"]["ues"]["id"]) == 10_000
        planned(page, lambda: page.select_option("#scenario", "umi-phones"))
        page.select_option("#planner", "yang")
        page.wait_for_selector("#planner[aria-invalid]")
        assert "its formulas are those of link shannon" in page.inner_text("#planner-why")
        assert (
            page.evaluate("getComputedStyle(document.querySelector('.mapcard')).filter")
            == "grayscale(1)"
        )
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
        until(
            page,
            "document.querySelector('#compare-table th:nth-child(2)').textContent.includes('40 %')",
        )
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
        until(
            page,
            f"document.querySelector('.level-name').textContent === 'target {100 * float(target):g} %'",
        )
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
        until(
            page,
            "document.body.dataset.status === 'running' && Number(document.body.dataset.watched) >= 2",
        )
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


def test_a_run_is_of_the_cell_that_is_planned_also_after_a_new_drop(browser, address):
    """The form had a seed and an algorithm of its own, so after New drop another cell was trained."""
    with opened(browser, address) as page:
        planned(page, lambda: page.click("#redraw"))
        page.keyboard.press("2")
        page.click("#new-run")
        page.fill("#rounds", "1")
        with page.expect_request(
            lambda one: one.method == "POST" and "/api/runs" in one.url
        ) as sent:
            page.click("#start-form button[type=submit]")
        asked = sent.value.post_data_json["settings"]
        assert asked["seed"] == 2
        assert "arm" not in asked
        until(page, "document.body.dataset.status === 'finished'")


def test_two_runs_are_compared_and_downloaded(browser, address, tmp_path):
    with opened(browser, address, "compare") as page:
        page.click("#choose-none")
        for name in ("autofl", "fedavg-2"):
            page.locator("#compare-list .item", has_text=f"finished · {name}").locator(
                "input"
            ).check()
        until(page, "document.body.dataset.compared === '2'")
        assert page.locator("#compare-table tbody tr").count() == 2
        assert page.locator("#compare-chart .line").count() == 2
        page.select_option("#filter-key", "arm")
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
        soft = page.evaluate(
            "getComputedStyle(document.querySelector('#compare-chart .tick')).fill"
        )
        assert (
            letters_left_of_the_axis(files["png"], soft) > 200
        )  # where their halo covers the numbers, there are none


def letters_left_of_the_axis(png, colour):
    """Pixels of this colour where a chart has the numbers of its vertical axis."""
    with Image.open(png) as picture:
        pixels = np.asarray(picture.convert("RGB"), dtype=int)[80:-200, :100]
    return int(
        (
            np.abs(pixels - [int(part) for part in re.findall(r"\d+", colour)[:3]]).max(axis=-1) < 8
        ).sum()
    )


def test_equal_runs_are_compared_and_an_error_of_another_view_stays(browser, address, runs):
    shutil.copytree(runs / "autofl", runs / "again")
    try:
        with opened(browser, address, "compare") as page:
            page.locator("#compare-list .item", has_text="finished · again").wait_for()
            page.click("#choose-all")
            until(page, "Number(document.body.dataset.compared) >= 3")
            assert page.locator("#compare-table tbody tr").count() >= 2
            assert "left out: 1 of AutoFL" in page.inner_text("#compare-note")
            lasting = """async () => {
                const { latest, problem } = await import("/static/dom.js");
                const good = latest(async () => {}), ill = { now: true };
                const bad = latest(async () => { if (ill.now) throw new Error("one is wrong"); });
                const said = () => document.getElementById("problem").textContent;
                await bad();
                await good();
                const meanwhile = said();
                ill.now = false;
                await bad();
                return [meanwhile, said()];
            }"""
            assert page.evaluate(lasting) == ["one is wrong", ""]
    finally:
        shutil.rmtree(runs / "again")


def test_a_refused_cell_is_not_saved_and_reset_leaves_it(browser, address, tmp_path, capsys):
    with opened(browser, address, refused=True) as page:
        planned(page, lambda: page.select_option("#scenario", "umi-phones"))
        page.select_option("#planner", "yang")
        page.wait_for_selector("#planner[aria-invalid]")
        why = page.inner_text("#planner-why")
        page.click("#save")
        page.wait_for_selector("#problem:not([hidden])")
        assert page.inner_text("#problem") == f"not saved: {why}"
        answer = planned(page, lambda: page.click("#reset"))
        assert answer["plan"]["planner"] == page.input_value("#planner") == "paper"
        assert page.input_value("#scenario") == "paper"
        assert page.is_hidden("#problem")
        assert said_by_plan(saved(page, tmp_path), capsys)["planner"] == "paper"


def test_numbers_have_three_digits_however_small(browser, address):
    with opened(browser, address) as page:
        page.focus("#s-epsilon")
        planned(page, lambda: page.keyboard.press("Home"))
        assert page.input_value("#n-epsilon") == "0.004"
        shown = page.evaluate(
            """async () => {
                const { si } = await import("/static/dom.js");
                const plain = [0.00416, 0.0213, 0.25, 9.999, 12.34, 99.96, 512.4, 10000].map((value) => si(value, ""));
                return [...plain, si(0.1554, "s")];
            }"""
        )
        assert shown == ["0.00416", "0.0213", "0.25", "10", "12.3", "100", "512", "10000", "155 ms"]


def test_the_line_of_a_scenario_says_what_was_changed(browser, address):
    with opened(browser, address) as page:
        before = page.inner_text("#scenario-line")
        for key in ("num_ue", "num_selected"):
            page.focus(f"#s-{key}")
            planned(page, lambda: page.keyboard.press("ArrowRight"))
        assert (
            page.inner_text("#scenario-line") == f"{before} Changed here: UEs, Selected in a round."
        )
        planned(page, lambda: page.click("#reset"))
        assert page.inner_text("#scenario-line") == before


def test_the_joint_planner_asks_all_ues_unless_fewer_are_chosen(browser, address):
    with opened(browser, address) as page:
        assert page.is_hidden("#decisions")
        planned(page, lambda: page.select_option("#planner", "joint"))
        assert page.input_value("#n-num_selected") == "all"
        assert "measured by each UE" in page.inner_text("#decisions")
        for text, shown, fixed in (("4", "4 UEs", True), ("all", "all", False)):

            def write(text=text):
                page.fill("#n-num_selected", text)
                page.keyboard.press("Tab")

            assert planned(page, write)["all_asked"] is not fixed
            assert page.input_value("#n-num_selected") == shown
            assert ("set by you" in page.inner_text("#decisions")) is fixed


def test_a_run_that_is_starting_is_stopped(browser, address):
    with opened(browser, address, "watch") as page:
        page.click("#new-run")
        page.fill("#rounds", "3000")
        page.click("#start-form button[type=submit]")
        until(page, "document.body.dataset.status === 'starting'")
        assert page.is_disabled("[data-wish=pause]")
        assert "first round" in page.get_attribute("[data-wish=pause]", "title")
        page.click("[data-wish=stop]")
        until(page, "document.body.dataset.status === 'stopped'")
        assert page.is_hidden("#problem")


def test_a_round_in_which_nobody_takes_part_has_no_time(browser, address):
    with opened(browser, address) as page:
        for key, end in (
            ("max_energy", "Home"),
            ("max_power", "Home"),
            ("bandwidth", "End"),
            ("radius", "End"),
        ):
            page.focus(f"#s-{key}")
            answer = planned(page, lambda end=end: page.keyboard.press(end))
        assert answer["plan"]["num_feasible"] == 0
        assert page.inner_text("#figures div >> nth=0").split("\n")[1:] == [
            "–",
            "nobody takes part",
        ]


def test_the_bar_of_the_slowest_ue_is_the_round_with_its_downlink(browser, address):
    with opened(browser, address) as page:
        answer = planned(page, lambda: page.select_option("#scenario", "factory-hall"))
        plan = answer["plan"]
        assert plan["downlink_time"] > 0.1 * plan["round_time"]
        keys = page.inner_text(".bars:has(#bars-time) .keys").split("\n")
        assert [key.strip() for key in keys if key.strip()] == [
            "computing",
            "sending",
            "downlink",
            "overhead",
        ]
        bars = page.evaluate(
            "[...document.querySelectorAll('#bars-time .bar')].map((bar) =>"
            " [...bar.querySelectorAll('rect:not(.hit)')].map((part) => Number(part.getAttribute('height'))))"
        )
        parts = page.evaluate(
            "[...document.querySelectorAll('#bars-time .bar title')].map((one) => one.textContent)"
        )
        assert all(re.search(r"downlink [1-9]\d* ms, overhead", text) for text in parts), parts[0]
        times = (
            np.array(plan["ues"]["compute_time"])
            + np.array(plan["ues"]["upload_time"])
            + plan["downlink_time"]
        )
        heights = np.array([sum(bar) for bar in bars])
        np.testing.assert_allclose(heights / heights.max(), times / times.max(), atol=0.01)


def test_the_planned_time_stands_apart_from_what_this_round_draws(browser, address):
    with opened(browser, address) as page:
        plan = planned(page, lambda: page.select_option("#scenario", "narrowband-sensors"))["plan"]
        assert plan["round_time"] > 1.2 * plan["planned_time"]
        assert "without this round's retransmissions" in page.inner_text("#figures div >> nth=0")
        planned(page, lambda: page.select_option("#scenario", "paper"))
        assert "retransmissions" not in page.inner_text("#figures div >> nth=0")


def test_ten_thousand_ues_fit_their_cards_axes_and_map(browser, address):
    with opened(browser, address) as page:
        page.focus("#s-num_ue")
        planned(page, lambda: page.keyboard.press("End"))
        assert page.inner_text("#figures strong >> nth=1").replace("\n", " ") == "10,000 of 10,000"
        until(page, "document.querySelectorAll('#bars-time .bar').length === 60")
        cards = "[...document.querySelectorAll('#figures div')]"
        assert (
            page.evaluate(f"{cards}.filter((card) => card.scrollWidth > card.clientWidth).length")
            == 0
        )
        assert overlaps(page, "#bars-time .tick[text-anchor=middle]") == 0
        inside(page)


def test_the_slowest_ue_is_marked_above_the_others_and_inside_the_map(browser, address):
    with opened(browser, address) as page:
        assert (
            page.evaluate("document.querySelector('.slow').nextElementSibling") is None
        )  # nothing is drawn after it
        inside(page)
        for _ in range(4):
            planned(page, lambda: page.click("#redraw"))
            inside(page)


def inside(page):
    """The mark of the slowest UE lies on the map, not upon the cards above it."""
    mark, cell = (page.locator(name).bounding_box() for name in (".slow", "svg.cell"))
    assert mark["y"] >= cell["y"] - 2
    assert mark["y"] + mark["height"] <= cell["y"] + cell["height"] + 2


def overlaps(page, words):
    """How many of these texts lie upon the next one."""
    return page.evaluate(
        """(words) => {
            const boxes = [...document.querySelectorAll(words)].map((text) => text.getBoundingClientRect());
            return boxes.filter((box, k) => k && boxes[k - 1].right > box.left).length;
        }""",
        words,
    )


def test_who_took_part_ends_with_the_last_round(browser, address):
    with opened(browser, address, "watch") as page:
        page.locator("#watch-list .item", has_text="finished · autofl").click()
        until(page, "document.body.dataset.watched === '6'")
        assert page.inner_text(".whogrid small").split("\n") == ["round 1", "round 6"]
        assert page.evaluate("document.querySelector('.whogrid canvas').width % 6") == 0


def test_the_table_of_runs_fits_the_page(browser, address):
    def with_intervals(route):
        answer = route.fetch()
        said = answer.json()
        said["table"] = [
            [
                row[0],
                "0.055 ± 0.131",
                "0.059 (1 of 2)",
                *["87.7 ± 20.8"] * 2,
                "–",
                *["0.89 ± 0.08"] * 2,
                "141.1 ± 10.2",
                "1.49 + 45.2 + 93.1 + 0",
                "1.00",
            ]
            for row in said["table"]
        ]
        route.fulfill(response=answer, json=said)

    with opened(browser, address, "compare") as page:
        page.route("**/api/compare", with_intervals)
        page.click("#choose-all")
        until(page, "document.querySelector('#compare-table').textContent.includes('20.8')")
        assert page.evaluate(
            "(({ scrollWidth, clientWidth }) => scrollWidth <= clientWidth)(document.querySelector('#compare-table'))"
        )


def test_the_theme_is_kept(browser, address):
    with opened(browser, address) as page:
        page.click("#theme")
        page.reload()
        page.wait_for_selector(READY["plan"])
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_a_forecast_is_marked_while_other_settings_are_shown(browser, address):
    with opened(browser, address) as page:
        page.click("#forecast")
        page.wait_for_selector("#forecast-answer .figures")
        assert page.is_hidden("#forecast-old")
        for word in ("exact", "paper"):
            planned(page, lambda word=word: page.select_option("#planner", word))
            assert page.is_visible("#forecast-old") == (word == "exact")
            assert page.locator("#forecast-answer.stale").count() == (word == "exact")
        planned(page, lambda: page.select_option("#scenario", "umi-phones"))
        assert page.is_visible("#forecast-old")
        assert grave(page) == []
        planned(page, lambda: page.click("#reset"))
        assert page.is_hidden("#forecast-old")
        page.fill("#target", "0.8")
        assert page.is_visible("#forecast-old")


def test_a_forecast_that_takes_minutes_says_how_far_it_is_and_is_cancelled(browser, address):
    with opened(browser, address) as page:
        page.route(
            "**/api/curve", lambda route: None
        )  # curves and forecasts are made one after another
        planned(page, lambda: page.select_option("#planner", "joint"))
        planned(page, lambda: page.select_option("#scenario", "vehicles"))
        page.click("#forecast")
        until(
            page,
            "document.getElementById('forecast-answer').textContent.includes('0 of 20 networks')",
        )
        page.click("#cancel")
        until(page, "document.getElementById('forecast-answer').textContent === 'Cancelled.'")
        assert page.is_hidden("#cancel")
        page.unroute("**/api/curve")
        planned(page, lambda: page.click("#reset"))
        page.wait_for_selector(".three:not(.stale)")


def test_a_scenario_whose_path_loss_ends_nearby_opens_without_an_error(browser, address):
    with opened(browser, address) as page:
        for scenario, model in (("factory-hall", "InH"), ("rural-macro", "RMa")):
            answer = planned(
                page, lambda scenario=scenario: page.select_option("#scenario", scenario)
            )
            assert answer["plan"]["num_feasible"] > 0
            page.locator("#curve-radius + .hint", has_text=f"the path loss of {model}").wait_for()
            assert page.locator("#curve-radius .line").count() == 1
            assert page.is_hidden("#problem")


def test_curves_of_the_cell_before_stay_marked_as_old(browser, address):
    with opened(browser, address) as page:
        held = []
        page.route("**/api/curve", lambda route: held.append(route))

        def next_curve():
            for _ in range(PATIENCE // 50):
                if held:
                    return held.pop()
                page.wait_for_timeout(50)
            raise AssertionError("no curve is asked for")

        planned(page, lambda: page.click("#redraw"))
        before = next_curve()
        planned(page, lambda: page.click("#redraw"))
        before.continue_()
        first = (
            next_curve()
        )  # of the cell that is shown: the others of the cell before are not waited for
        assert [one.request.post_data_json["over"] for one in (before, first)] == [
            "energy",
            "energy",
        ]
        assert first.request.post_data_json["settings"] != before.request.post_data_json["settings"]
        assert page.locator(".three.stale").count() == 1
        page.unroute("**/api/curve")
        page.wait_for_selector(".three:not(.stale)")


def test_a_number_is_typed_for_each_slider(browser, address, tmp_path, capsys):
    typed = {
        "num_ue": ("100", 100),
        "radius": ("0.25 km", 250.0),
        "max_energy": ("1.2345 mJ", 0.0012345),
        "max_power": ("0.02", 0.02),
        "bandwidth": ("1.5MHz", 1.5e6),
        "epsilon": ("0.0123", 0.0123),
        "local_steps": ("7", 7),
        "num_selected": ("33", 33),
        "bits": ("7", 7 + 16 / 256),
    }
    assert set(typed) == set(SLIDERS)
    with opened(browser, address, refused=True) as page:
        for key, (text, value) in typed.items():

            def write(key=key, text=text):
                page.fill(f"#n-{key}", text)
                page.keyboard.press("Tab")

            answer = planned(page, write)
            assert answer["values"][key] == pytest.approx(
                value, rel=1e-3 if key == "bits" else 1e-12
            )
        assert page.input_value("#n-max_energy") == "1.2345 mJ"
        assert_plans(saved(page, tmp_path), answer["plan"], capsys)
        for text, why in (
            ("many", "a number, such as 100"),
            ("20000", "20,000 UEs; the page takes up to 10,000"),
        ):
            page.fill("#n-num_ue", text)
            page.keyboard.press("Tab")
            page.wait_for_selector("#n-num_ue-why")
            until(page, f"document.getElementById('n-num_ue-why').textContent.includes('{why}')")


def test_a_settings_file_is_opened_dropped_or_pasted_and_a_bad_one_changes_nothing(
    browser, address, tmp_path, capsys
):
    example = Path(__file__).parents[2] / "examples" / "cell.toml"
    carry = """([kind, place, text]) => {
        const carried = new DataTransfer();
        if (kind === "drop") carried.items.add(new File([text], "dropped.toml"));
        else carried.setData("text/plain", text);
        const how = { bubbles: true, cancelable: true, clipboardData: carried, dataTransfer: carried };
        const event = kind === "drop" ? new DragEvent(kind, how) : new ClipboardEvent(kind, how);
        document.querySelector(place).dispatchEvent(event);
    }"""
    with opened(browser, address, refused=True) as page:
        answer = planned(page, lambda: page.set_input_files("#file", example))
        assert_plans(example, answer["plan"], capsys)
        assert (
            page.evaluate("document.getElementById('scenario').selectedOptions[0].textContent")
            == "cell.toml"
        )
        answer = planned(
            page, lambda: page.select_option("#planner", "joint")
        )  # has no epsilon of its own
        assert_plans(saved(page, tmp_path), answer["plan"], capsys)
        page.evaluate(carry, ["paste", "body", '[planner]\nname = "os:system"'])
        page.wait_for_selector("#problem:not([hidden])")
        assert "own parts can be used on the command line only" in page.inner_text("#problem")
        assert page.inner_text("#figures strong >> nth=1").endswith("of 8")
        for kind, place, count in (("paste", "body", 9), ("drop", "#map", 11)):
            text = f"[cell]\nnum_ue = {count}"
            answer = planned(
                page,
                lambda kind=kind, place=place, text=text: page.evaluate(carry, [kind, place, text]),
            )
            assert len(answer["plan"]["ues"]["id"]) == count
        assert page.is_hidden("#problem")
        answer = planned(page, lambda: page.select_option("#scenario", "umi-phones"))
        assert len(answer["plan"]["ues"]["id"]) != 11
        assert page.locator("#opened").count() == 0


def test_damaged_and_interrupted_runs_are_named_and_the_others_compared(browser, address, unwell):
    with opened(browser, address, "compare", refused=True) as page:
        page.click("#choose-all")
        for name in ("cut", "garbled"):
            item = page.locator("#compare-list .item", has_text=f"damaged · {name}")
            item.wait_for()
            assert item.locator("input").is_disabled()
        until(page, "document.querySelectorAll('#compare-chart .line').length >= 3")
        assert "seed 2 is interrupted" in page.inner_text("#compare-note")
        assert page.locator("#compare-chart .line[stroke-dasharray]").count() >= 1
        assert page.locator("#compare-chart .line:not([stroke-dasharray])").count() >= 1
        assert page.is_hidden("#problem")
        page.keyboard.press("2")
        page.locator("#watch-list .item", has_text="damaged · cut").click()
        until(
            page, "document.getElementById('watch-status').textContent.includes('SHA-256 differs')"
        )


def test_runs_are_compared_over_a_logarithmic_axis_at_first(browser, address):
    with opened(browser, address, "compare") as page:
        page.click("#choose-none")
        page.locator("#compare-list .item", has_text="finished · autofl").locator("input").check()
        until(page, "document.body.dataset.compared === '1'")
        line = page.get_attribute("#compare-chart .line >> nth=0", "d")
        gaps = np.diff([float(place) for place in re.findall(r"[ML]([\d.]+),", line)])
        assert len(gaps) == 5
        assert (
            np.diff(gaps) < -1
        ).all()  # rounds take about the same time: on a linear axis all gaps are equal


def test_a_forecast_that_is_not_possible_names_no_file_and_no_command(browser, address):
    with opened(browser, address, refused=True) as page:
        page.fill("#target", "0.99")
        page.click("#forecast")
        page.wait_for_selector("#forecast-answer .warn")
        said = page.inner_text("#forecast-answer")
        assert "pilots reach 0.99" in said
        assert not re.search(r"autofl|--|/|\.json", said)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_where_a_plan_is_refused_or_curves_are_old(
    browser, address, scheme
):
    with opened(browser, address, scheme=scheme, refused=True) as page:
        page.route("**/api/curve", lambda route: None)  # no answer: the curves stay old
        planned(page, lambda: page.click("#redraw"))
        page.wait_for_selector(".three.stale")
        assert grave(page) == []
        planned(page, lambda: page.select_option("#scenario", "umi-phones"))
        page.select_option("#planner", "yang")
        page.wait_for_selector("#view-plan.refused")
        assert grave(page) == []
    with opened(browser, address, "compare", scheme=scheme) as page:
        page.fill("#compare-target", "0")
        page.keyboard.press("Tab")
        page.wait_for_selector("#compare-table.stale")
        assert grave(page) == []


@pytest.mark.parametrize("view", READY)
@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), (1280, "dark"), (360, "light"), (360, "dark")]
)
def test_axe_finds_nothing_serious_at_any_width_and_theme(browser, address, view, width, scheme):
    with opened(browser, address, view, width, scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert grave(page) == []


def grave(page):
    """What axe calls serious or critical."""
    axe = pytest.importorskip("axe_playwright_python", reason="needs the extra browser")
    page.evaluate(
        (Path(axe.__file__).parent / "axe.min.js").read_text()
    )  # past the policy, which loads nothing
    result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        (rule["id"], rule["nodes"][0]["html"][:200], rule["nodes"][0]["failureSummary"])
        for rule in result["violations"]
        if rule["impact"] in ("serious", "critical")
    ]


def test_the_first_paint_is_quick_and_the_page_small(browser, address):
    paints, sizes = [], []
    for _ in range(3):
        with opened(browser, address) as page:
            paints.append(
                page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
            )
            sizes.append(
                page.evaluate(
                    "performance.getEntries().filter((e) => ['navigation', 'resource'].includes(e.entryType))"
                    ".reduce((sum, e) => sum + e.transferSize, 0)"
                )
            )
    print(f"first paint {min(paints):.0f} ms, {max(sizes)} bytes")
    assert min(paints) < 500
    assert 20_000 < max(sizes) < 1_000_000
