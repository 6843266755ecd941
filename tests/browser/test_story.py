"""A debugging story on a real run with a planted fault: the trained tokens get older and older; whose fault is it?

From the age curve to the swim-lane to the sample to the cell, each step one click, found in under six (accounting.md, trace explorer).
"""

import json
import re
import urllib.parse

CLICKS_MAX = 5
EXECUTIONS_MAX = 64
"""Of a step."""
CAP = 6
"""trajproc.age_steps_max of the recorded run."""
OLD = ["#a81d2e", "#dc5527", "#ee8d31"]
"""Colours of the highest ages, oldest first (static/format.js)."""
SCREENS = {
    "Age": "Age by step", "Swim-lanes": "Swim-lanes", "Origin of age": "Where the age came from", "Lineage": "Lineage", "Drops": "Drops and fairness",
    "Pressure": "Pressure", "Rows": "Executions",
}  # fmt: skip
"""Name in the navigation → heading."""
FIND = """
(canvas, colours) => {
  const { width, height } = canvas, ratio = devicePixelRatio;
  const data = canvas.getContext("2d").getImageData(0, 0, width, height).data;
  for (const colour of colours) {
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
    for (let y = 30; y < height - 60; y += 1) for (let x = 60; x < width; x += 1) {
      const at = 4 * (y * width + x);
      if (data[at] === r && data[at + 1] === g && data[at + 2] === b) return { x: (x + 1) / ratio, y: (y + 0.5) / ratio };
    }
  }
  return null;
}
"""


def opened(page, link: str) -> None:
    page.goto(link)
    page.get_by_role("heading", name="Age by step").wait_for()
    page.locator(".uplot canvas").wait_for()


def query(page) -> dict[str, str]:
    return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(page.url).query))


def test_the_cell_that_stopped_taking_weights_is_found_in_under_six_clicks(page, planted, served):
    clicks = 0
    opened(page, served(planted))
    facts = page.locator("dl.facts").inner_text()
    oldest, cap = (int(re.search(rf"{name}\s+(\d+)", facts).group(1)) for name in ("Oldest token", "Hard cap"))
    assert oldest > cap, "the curve shows tokens older than any execution may be: something samples with old weights"

    over = page.locator(".u-over").bounding_box()
    page.mouse.click(over["x"] + over["width"] - 2, over["y"] + over["height"] / 2)  # the newest step
    clicks += 1
    page.locator(".lanes canvas[data-drawn]").wait_for()
    assert "step" in query(page)

    canvas = page.locator(".lanes canvas")
    at = canvas.evaluate(FIND, OLD)
    assert at, "an old bar is seen by its colour"
    canvas.click(position=at)
    clicks += 1
    page.get_by_role("heading", name="Model calls").wait_for()

    behind = page.locator("section[aria-label='Model calls'] tr", has=page.locator("td .bad")).first
    cell = behind.get_by_role("link").inner_text()
    behind.get_by_role("link").click()
    clicks += 1
    page.get_by_text("it stopped taking new weights").wait_for()

    assert cell == "cell-1" and query(page)["cell"] == "cell-1", "the one with the planted fault"
    row = page.locator(".cellrow.lit")
    assert "cell-1" in row.inner_text() and "behind" in row.inner_text()
    assert clicks <= CLICKS_MAX
    assert page.problems == []
    print(json.dumps({"clicks_to_cell": clicks, "oldest_token_steps": oldest, "cap_steps": cap}))


def test_the_same_story_without_a_mouse(page, planted, served):
    """Focus, arrows, Enter: every step of the story has its key."""
    opened(page, served(planted))
    page.locator(".chart").first.focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    page.locator(".lanes canvas[data-drawn]").wait_for()
    page.locator(".lanes canvas").focus()
    page.keyboard.press("n")
    page.locator(".tip").wait_for()
    for _ in range(EXECUTIONS_MAX):  # n goes through the step's executions
        if int(re.search(r"age (\d+)", page.locator(".tip").inner_text()).group(1)) > CAP:
            break
        shown = page.locator(".tip b").inner_text()
        page.keyboard.press("n")
        page.wait_for_function("(old) => document.querySelector('.tip b')?.innerText !== old", arg=shown)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Model calls").wait_for()
    assert page.evaluate("document.activeElement.id") == "main", "a screen that changed is read from its beginning"
    link = page.locator("section[aria-label='Model calls'] tr", has=page.locator("td .bad")).first.get_by_role("link")
    link.focus()
    page.keyboard.press("Enter")
    page.get_by_text("it stopped taking new weights").wait_for()
    assert query(page)["cell"] == "cell-1"


def test_an_address_brings_the_view_back(page, planted, served):
    """What is zoomed to, filtered and chosen stands in the address; a reload shows the same."""
    opened(page, served(planted))
    page.goto(re.sub(r"/age.*", "/lanes?cell=cell-1&state=trained", page.url))
    canvas = page.locator(".lanes canvas[data-drawn]")
    canvas.wait_for()
    canvas.focus()
    for key in ("+", "]", "ArrowRight"):
        there = page.url
        page.keyboard.press(key)
        page.wait_for_url(lambda url, there=there: url != there)
    before, shown = page.url, page.locator("main").inner_text()
    page.reload()
    canvas.wait_for()
    page.wait_for_function("(text) => document.querySelector('main').innerText === text", arg=shown)
    assert page.url == before
    page.go_back()
    page.get_by_role("heading", name="Age by step").wait_for()


def test_every_screen_opens_in_both_themes_without_a_complaint(page, planted, served):
    opened(page, served(planted))
    for theme in ("dark", "light"):
        page.get_by_role("button", name=f"Change to the {theme} theme").click()
        for name, heading in SCREENS.items():
            page.get_by_role("navigation").get_by_role("link", name=name, exact=True).click()
            page.get_by_role("heading", name=heading, level=1).wait_for()
            page.locator("main section").first.wait_for()
            assert page.locator("main h1").count() == 1 and page.get_by_role("main").count() == 1
            assert page.get_by_role("navigation").locator("[aria-current=page]").inner_text() == name
    assert page.problems == []


def test_a_sample_shows_its_tokens_and_their_tree(page, planted, served):
    opened(page, served(planted))
    page.get_by_role("navigation").get_by_role("link", name="Rows").click()
    page.locator("table a").first.click()
    page.get_by_role("heading", name="Messages and tokens").wait_for()
    token = page.locator(".token").first
    token.hover()
    aside = page.get_by_label("Token", exact=True)
    assert "Sampler log-p" in aside.inner_text() and "Version" in aside.inner_text()
    assert page.locator(".tree li").count() > 1
    assert page.problems == []


def test_a_tenant_sees_nothing_of_others(page, planted, served):
    link = served(planted, "nobody")
    page.goto(link)
    page.get_by_text("Tenant nobody").wait_for()
    page.get_by_role("navigation").get_by_role("link", name="Rows").click()
    page.get_by_text("No execution fits these filters.").wait_for()


def test_a_link_signs_in_once(page, chromium, planted, served):
    link = served(planted)
    opened(page, link)
    assert "key=" not in page.url, "the key does not stay in the address"
    other = chromium.new_context().new_page()
    other.goto(link)
    other.get_by_text("was used already").wait_for()
    other.context.close()
