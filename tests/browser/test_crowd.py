"""10,000 executions in one view: first paint under 2 s, panning at 30 frames a second. The figures are the promise, and the browser draws
without a GPU."""

import json
import time
from itertools import pairwise

import pytest

from tests.browser.books import kept
from tests.browser.crowd import crowd

EXECUTIONS = 10_000
FIRST_PAINT_S_MAX = 2.0
FRAMES_PER_S_MIN = 30.0
PAN_STEPS = 90
OPENINGS = 4
FRAMES = """
() => new Promise((done) => {
  const canvas = document.querySelector(".lanes canvas"), box = canvas.getBoundingClientRect(), times = [];
  const send = (kind, x, y) => canvas.dispatchEvent(new PointerEvent(kind, { clientX: x, clientY: y, pointerId: 1, bubbles: true }));
  canvas.setPointerCapture = () => {};
  let step = 0;
  const start = { x: box.left + box.width / 2, y: box.top + box.height / 2 };
  send("pointerdown", start.x, start.y);
  const frame = (now) => {
    times.push(now);
    if (step === STEPS) { send("pointerup", start.x, start.y); return done(times); }
    step += 1;
    send("pointermove", start.x + 120 * Math.sin(step / 9), start.y + 60 * Math.cos(step / 9));
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
})
"""


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    return kept(tmp_path_factory.mktemp("crowd"), crowd(EXECUTIONS)).root


def test_ten_thousand_executions_are_drawn_within_two_seconds_and_follow_the_hand(page, crowded, served):
    """The best of a few openings, each by a server that has kept nothing: what else runs on the machine only adds."""
    for _ in range(OPENINGS):
        figures = opened(page, served(crowded))
        print(json.dumps(figures))
        if figures["first_paint_s"] < FIRST_PAINT_S_MAX and figures["frames_per_s"] >= FRAMES_PER_S_MIN:
            break
    assert page.problems == []
    assert figures["first_paint_s"] < FIRST_PAINT_S_MAX and figures["frames_per_s"] >= FRAMES_PER_S_MIN, figures


def opened(page, link: str) -> dict[str, float]:
    """Signs in, opens the lanes by their address, drags them about."""
    page.goto(link)
    page.get_by_role("heading", name="Age by step").wait_for()
    address = page.url.replace("/age", "/lanes")
    page.goto("about:blank")
    began_s = time.perf_counter()
    page.goto(address)
    page.locator(".lanes canvas[data-drawn]").wait_for()
    seen_s = time.perf_counter() - began_s
    paint_s = page.evaluate("performance.getEntriesByName('lanes-drawn')[0].startTime") / 1000
    assert f"{EXECUTIONS:,}".replace(",", "\u202f") in page.locator(".card .note").first.inner_text()

    drawn = int(page.locator(".lanes canvas").get_attribute("data-drawn"))
    times = page.evaluate(FRAMES.replace("STEPS", str(PAN_STEPS)))
    frames = int(page.locator(".lanes canvas").get_attribute("data-drawn")) - drawn
    assert frames >= PAN_STEPS * 0.9, "every movement is drawn"
    slowest_ms = max(later - earlier for earlier, later in pairwise(times))
    return {
        "first_paint_s": round(paint_s, 3), "seen_s": round(seen_s, 3), "frames_per_s": round(frames * 1000 / (times[-1] - times[0]), 1),
        "slowest_frame_ms": round(slowest_ms, 1),
    }  # fmt: skip
