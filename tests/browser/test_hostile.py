"""Hostile content is shown as text and breaks nothing: markup, terminal escapes, lines of a megabyte, spans whose parents go round in a circle."""

import msgspec
import pytest

from gyre import records as r
from services.trajproc.core.sampling import choose_paths
from services.trajproc.core.tree import build_tree
from services.trajproc.store import TreeStore
from tests.browser.books import kept
from tests.unit.ledger.ledger_history import TRACE, changed, history

MARKUP = (
    '<img src=x onerror="window.pwned=1"><script>window.pwned=2</script><a href="javascript:window.pwned=3">click</a>'
)
ESCAPES = "\x1b[2J\x1b]0;owned\x07\x1b[31mred\x9bm \u202eevil"
LINE = "A" * 1_000_000
SAMPLE = "g000001-e0-a1"
DROPPED = "g000003-e1-a1"
TRACE_ID = TRACE.split("-")[1]


def hostile_facts() -> list[r.Fact]:
    facts = history()
    for group in ("g000000", "g000001", "g000003"):
        task = next(fact.task for fact in facts if isinstance(fact, r.GroupSubmitted) and fact.group_id == group)
        task = msgspec.structs.replace(task, task_type=MARKUP, task_id=ESCAPES, tenant=MARKUP)
        facts = changed(facts, r.GroupSubmitted, lambda f, g=group: f.group_id == g, task=task)
    facts = changed(facts, r.SampleDropped, lambda f: f.sample_id == DROPPED, detail=ESCAPES + MARKUP + LINE)
    facts = changed(
        facts,
        r.CallRecorded,
        lambda f: f.execution_id == "g000001-e0",
        cells=[MARKUP],
        finish_reason=ESCAPES,
        role=MARKUP,
    )
    facts = changed(
        facts,
        r.ExecutionStarted,
        lambda f: f.execution_id == "g000001-e0",
        tool_versions={MARKUP: ESCAPES},
        image_digest=LINE,
    )
    facts += [
        r.AlarmRaised(kind=MARKUP, message=MARKUP + ESCAPES + LINE, service="cell-0", at_s=33.0),
        r.RewardScored(sample_id=SAMPLE, execution_id="g000001-e0", group_id="g000001", attempt=1, task_type="t", evaluator=MARKUP, kind="rule",
                       value=1.0, valid=True, partial=False, tries=1, took_s=1.0, evidence={"x": LINE}, looked_at=[], detail=LINE, at_s=10.5),
    ]  # fmt: skip
    return facts


def circle() -> list[dict]:
    """Spans a → b → c → a, one its own parent, one whose parent never came."""
    names = {"a": "c", "b": "a", "c": "b", "d": "d", "e": "f"}
    return [
        {"run": "", "service": MARKUP, "trace_id": TRACE_ID, "span_id": name * 16, "parent_id": parent * 16, "name": MARKUP + ESCAPES, "kind": 1,
         "start_ns": 1_000_000_000 * index, "end_ns": 1_000_000_000 * (index + 2), "attributes_json": msgspec.json.encode({"m": LINE}).decode(),
         "links_json": "[]", "links_dropped": 0, "status": 2, "status_message": MARKUP}
        for index, (name, parent) in enumerate(names.items())
    ]  # fmt: skip


def tokenizer_of(folder) -> None:
    """A token a character."""
    from gyre.cli.dryrun.model import make

    make(folder)


def hostile_tree(folder, model) -> None:
    """A system prompt with markup, a reply of markup, and a tool result of half a megabyte in one line."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))

    def record(index: int, prompt: str, reply: str, parent_tokens: int) -> r.CallRecorded:
        said = tokenizer.encode(reply).ids
        return r.CallRecorded(
            call_id=f"{SAMPLE}-c{index}", execution_id="g000001-e0", group_id="g000001", attempt=1, call_index=index, purpose="train",
            parent=f"{SAMPLE}-c{index - 1}" if index else "", parent_tokens=parent_tokens, prompt_delta=r.pack(tokenizer.encode(prompt).ids, "int32"),
            prompt_tokens=parent_tokens + len(prompt), output_ids=r.pack(said, "int32"), logprobs=r.pack([-1.0] * len(said), "float32"),
            versions=r.pack([0] * len(said), "int32"), sampling=r.Sampling(temperature=1.0, top_p=1.0, max_tokens=999, seed=1), finish_reason="stop",
            at_s=5.0,
        )  # fmt: skip

    first = record(0, MARKUP, MARKUP, 0)
    tree = build_tree([first, record(1, "B" * 500_000, MARKUP, 2 * len(MARKUP))])
    store = TreeStore(folder.trees)
    store.put(SAMPLE, tree, [path.leaf for path in choose_paths(tree, SAMPLE, 5)])
    store.close()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    root = tmp_path_factory.mktemp("hostile")
    tokenizer_of(root / "model")
    folder = kept(root / "run", hostile_facts(), circle(), model=str(root / "model"))
    hostile_tree(folder, root / "model")
    return folder.root


@pytest.mark.parametrize(
    "path",
    ["/age", "/lanes", "/origin", "/lineage", "/drops", "/pressure", "/rows?purpose=all", f"/sample?sample={SAMPLE}", f"/sample?sample={DROPPED}",
     "/rows?state=%3Cscript%3E", "/sample?sample=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E", "/rows?task_type=%3Cb%3E%1B%5B2J"],
)  # fmt: skip
def test_it_is_shown_as_text_and_breaks_nothing(page, hostile, served, path):
    page.goto(served(hostile))
    page.get_by_role("heading", name="Age by step").wait_for()
    page.goto(page.url.replace("/age", path))
    page.locator("main h1, main h2").first.wait_for()
    page.wait_for_load_state("networkidle")
    if page.locator("button.more").count():
        page.locator("button.more").first.click()  # as much again of a long text
    assert page.evaluate("window.pwned") is None
    assert page.locator("main img, main script, a[href^='javascript:']").count() == 0
    text = page.locator("body").inner_text()
    assert "\x1b" not in text and "\u202e" not in text and "\x9b" not in text
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= page.viewport_size["width"] + 1, "a long line stays inside its box"
    refused = [problem for problem in page.problems if "400" not in problem and "404" not in problem]
    assert refused == [], "what the page itself did wrong; refusals of a wrong address are the server's word"


def test_messages_of_markup_stand_there_word_for_word(page, hostile, served):
    page.goto(served(hostile))
    page.get_by_role("heading", name="Age by step").wait_for()
    page.goto(page.url.replace("/age", f"/sample?sample={SAMPLE}"))
    page.locator(".flow").wait_for()
    assert MARKUP in page.locator(".node .text").first.inner_text()
    assert "".join(page.locator(".node.sampled").first.locator(".token").all_inner_texts()).startswith("<img src=x")
    assert page.locator(".span").count() == 5, "a circle of parents has an end"
