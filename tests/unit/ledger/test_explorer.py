"""What the trace explorer's pages are told, on the small run of ledger_history (screens of accounting.md)."""

import json
import math
from itertools import pairwise

import msgspec
import numpy as np
import pytest
import sqlalchemy as sa
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from gyre import records as r
from gyre.errors import InvalidInput
from gyre.token_log import tokens_seen
from services.ledger.explorer.answers import ANSWERS, export
from services.ledger.explorer.answers.age import age
from services.ledger.explorer.answers.attempts import newest, within_calls
from services.ledger.explorer.answers.lanes import lanes
from services.ledger.explorer.answers.listing import listing
from services.ledger.explorer.answers.origin import STAGES, origin
from services.ledger.explorer.answers.pressure import pressure
from services.ledger.explorer.answers.sample import depths
from services.ledger.explorer.answers.segments import merged
from services.ledger.explorer.answers.tokens import pieces, with_trained
from services.ledger.explorer.scope import scope_of
from tests.unit.ledger.ledger_history import RUN, changed, config, history


def scope(session: str = "", /, **address: object):
    """`session`: whose it is; empty for an operator's."""
    return scope_of({name: str(value) for name, value in address.items()}, RUN, config(), session)


@pytest.fixture
def asked(whole):
    """Question → its answer, through JSON as a browser gets it."""

    def ask(name: str, **address: object) -> dict:
        with whole.read() as connection:
            return msgspec.json.decode(msgspec.json.encode(ANSWERS[name](connection, scope(**address))))

    return ask


def test_a_bar_runs_from_its_first_token_to_its_gradient_and_is_split_by_version(asked):
    found = asked("lanes")
    bars, segments = found["bars"], found["segments"]
    at = bars["sample"].index("g000001-e0-a1")
    first = sum(bars["segments"][:at])
    # two calls at 5 and 6 s, each a third sampled by version 1: 0 until the first call's change, then 1, 0, 1
    own = segments["version"][first : first + bars["segments"][at]]
    assert own == [0, 1] or own == [0, 1, 0, 1]
    assert bars["to_s"][at] == 21.0 and bars["step"][at] == 1, "step 1 was updated at 21 s"
    assert bars["age"][at] == 1, "its oldest tokens are of version 0"
    assert segments["age"][first] == 1


def test_rows_of_a_band_do_not_overlap(asked):
    bars = asked("lanes")["bars"]
    by_row: dict[int, list[tuple[float, float]]] = {}
    for row, begin, end in zip(bars["row"], bars["from_s"], bars["to_s"], strict=True):
        by_row.setdefault(row, []).append((begin, end))
    for stretches in by_row.values():
        ordered = sorted(stretches)
        assert all(earlier[1] <= later[0] for earlier, later in pairwise(ordered))


def test_stretches_of_one_version_are_one_segment_and_time_in_tools_belongs_to_the_one_before():
    """Two samples at once, told in any order; where versions overlap a segment ends when the next begins; the third has no call."""
    sample, begin, end = np.array([1, 0, 0, 0, 1]), np.array([1.0, 5, 0, 2, 0]), np.array([2.0, 6, 1, 3, 9])
    found = merged(3, sample, begin, end, np.array([6, 5, 4, 4, 5]))
    assert [found.of(one) for one in range(3)] == [[(0, 5, 4), (5, 6, 5)], [(0, 1, 5), (1, 2, 6)], []]
    assert found.counts.tolist() == [2, 2, 0]


def test_a_page_is_of_fewer_executions_where_each_has_many_calls(whole, monkeypatch):
    """Two turns each: five calls are two executions', and one execution is shown however many it has."""
    with whole.read() as connection:
        monkeypatch.setattr("services.ledger.explorer.answers.attempts.CALLS_MAX", 5)
        found = lanes(connection, scope())
        assert (found["shown"], found["cut"]) == (2, True)
        monkeypatch.setattr("services.ledger.explorer.answers.attempts.CALLS_MAX", 0)
        assert lanes(connection, scope(group="g000001"))["shown"] >= 1
        assert within_calls([]) == []


def test_ages_by_step_are_the_batches_own_and_the_tokens_are_told_beside_them(asked):
    found = asked("age")
    by_step = {one["step"]: one for one in found["steps"]}
    assert [by_step[step]["mean"] for step in (0, 1)] == [0.0, 1.0], "as BatchClosed says"
    assert by_step[1]["tokens_oldest"] == 1, "version 0 sampled some of step 1's tokens"
    assert math.isclose(by_step[1]["tokens_mean"], 1 - 1 / 3), "every third token is of version 1"
    assert by_step[9]["dropped"] == 1, "g000003-e1 was dropped by age before step 9"
    assert (found["law"], found["cap"]) == (
        config().scheduler.extra_depth_steps + (config().scheduler.steps_per_publish - 1) / 2,
        config().trajproc.age_steps_max,
    )


def test_where_the_age_came_from_adds_up_to_the_age(asked):
    found = asked("origin")
    assert found["steps"]
    for step in found["steps"]:
        assert math.isclose(sum(step[stage] for stage in STAGES), step["age"], abs_tol=1e-3), step
    for one in found["slowest"]:
        assert sum(one[stage] for stage in STAGES) == one["age"]


def test_waiting_for_the_last_of_its_group_is_a_stage_of_its_own(books_of):
    """C8: g000001's other member ends at 20.5 s, after step 0 was updated at 20 s: that step passed while e0 waited for it."""
    facts = changed(
        history(), r.ExecutionEnded, lambda fact: fact.execution_id == "g000001-e1" and fact.attempt == 2, at_s=20.5
    )
    facts = changed(facts, r.SampleReady, lambda fact: fact.group_id == "g000001", at_s=20.6)
    with books_of(facts).read() as connection:
        one = next(row for row in origin(connection, scope(step=1))["slowest"] if row["sample"] == "g000001-e0-a1")
    assert (one["age"], one["group"], one["evaluation"], one["batch"]) == (1, 1, 0, 0)


def test_a_sample_stands_in_its_group_and_its_batch(asked):
    found = asked("sample", sample="g000001-e1-a2")
    assert [row["sample"] for row in found["group_samples"]] == ["g000001-e0-a1", "g000001-e1-a1", "g000001-e1-a2"]
    assert found["batch"]["position"] == 1 and found["batch"]["samples"] == 2 and found["batch"]["cell"] == "cell-0"
    assert found["state"] == "trained" and found["call_list"][0]["cells"] == ["cell-0"]


def test_lineage_goes_from_a_step_to_its_versions_and_from_a_version_to_its_steps(asked):
    step = asked("lineage", step=1)
    assert {one["group"] for one in step["groups"]} == {"g000001"} and [one["step"] for one in step["steps"]] == [1]
    assert {one["version"] for one in step["versions"]} == {0, 1}, "version 1 sampled a third of the tokens"
    back = asked("lineage", version=1)
    assert 1 in {one["step"] for one in back["steps"]}
    assert asked("lineage")["step"] == 1, "nothing chosen: the newest step that trained a sample"


def test_drops_are_told_by_reason_with_what_they_cost(asked):
    found = asked("drops")
    assert {row["reason"]: row["samples"] for row in found["reasons"]} == {
        "no_gradient": 2,
        "age": 1,
        "duplicate": 1,
        "environment_failed": 1,
    }
    assert sum(found["lengths"]["dropped"]) == 4, "a duplicate's turns are its execution's"
    assert found["truncated"][1] == {"step": 1, "samples": 2, "share": 0.5}


def test_pressure_knows_each_cells_role_versions_and_idleness(asked):
    found = asked("pressure")
    cells = {one["cell"]: one for one in found["cells"]}
    assert cells["cell-1"]["role"] == "training" and cells["cell-0"]["version"] == 2
    assert found["waterlevel"][0]["waterlevel"] == 2
    stages = found["backlogs"]
    assert max(stages["queued"]) > 0 and stages["closed"][-1] == 0


def test_a_cell_that_stopped_taking_weights_is_seen_behind(books_of):
    """The planted fault of the browser test, in small: a call by version 0 begins at 40 s; version 1 was published at 30 s."""
    facts = [
        msgspec.structs.replace(fact, at_s=41.0, started_at_s=40.0, versions=r.pack([0, 0, 0], "int32"))
        if isinstance(fact, r.CallRecorded) and fact.call_id == "g000000-e0-a1-c1" else fact
        for fact in history()
    ]  # fmt: skip
    with books_of(facts).read() as connection:
        cell = next(one for one in pressure(connection, scope())["cells"] if one["cell"] == "cell-0")
    last = cell["serving"][-1]
    assert (last["version"], last["behind"], last["calls"], last["sample"]) == (0, 1, 1, "g000000-e0-a1")
    assert cell["behind"] == 1 and cell["serving"][0]["behind"] == 0, "before anything was published nothing was behind"


def test_a_listing_goes_on_where_its_cursor_stands(whole):
    with whole.read() as connection:
        whole_list = [row["sample"] for row in listing(connection, scope(purpose="all"))["rows"]]
        found, after = [], ""
        for _ in range(len(whole_list)):
            page = listing(connection, scope(purpose="all", limit=2, after=after))
            found += [row["sample"] for row in page["rows"]]
            if not (after := page["next"]):
                break
        assert found == whole_list and len(found) == len(set(found)) == 11
        with pytest.raises(InvalidInput):
            listing(connection, scope(after="nonsense"))


@pytest.mark.parametrize("kind", ["whole", "on_postgres"])
def test_rows_whose_lease_was_not_told_come_last_and_are_all_listed(request, kind):
    """Both databases list in one order, and pages of two rows lead through all of it, from what was told to what was not."""
    made = request.getfixturevalue(kind)
    database = made(history()) if kind == "on_postgres" else made
    untold = ["g000000-e0-a1", "g000000-e1-a1", "g000001-e0-a1", "g000002-e1-a1", "g000004-e0-a1"]
    with database.writing.begin() as connection:
        for name in untold:
            connection.execute(
                sa.text("UPDATE attempts SET leased_at_s = NULL WHERE sample_id = :name"), {"name": name}
            )
    with database.read() as connection:
        assert newest(connection, scope(purpose="all"))[-5:] == untold
        found, page = [], {"next": ""}
        while not found or page["next"]:
            page = listing(connection, scope(purpose="all", limit=2, after=page["next"]))
            found += [row["sample"] for row in page["rows"]]
        assert len(found) == len(set(found)) == 11 and found[-5:] == untold


@pytest.mark.parametrize(
    "address",
    [
        {"state": "x"},
        {"purpose": "x"},
        {"step": "one"},
        {"group": "g" * 400},
        {"from": "nan"},
        {"step": 10**30},
        {"cell": "a\x00"},
    ],
)
def test_a_filter_that_is_none_is_refused_by_name(address):
    with pytest.raises(InvalidInput, match=next(iter(address))):
        scope(**address)


@pytest.mark.parametrize("state", ["running", "ready", "trained", "dropped", "ended"])
def test_states_of_the_filter_are_the_states_of_the_rows(whole, state):
    with whole.read() as connection:
        every = listing(connection, scope(purpose="all"))["rows"]
        found = listing(connection, scope(purpose="all", state=state))["rows"]
    assert [row["sample"] for row in found] == [row["sample"] for row in every if row["state"] == state]


def test_exports_are_lines_of_json_and_a_trace(whole):
    with whole.read() as connection:
        lines = [json.loads(line) for line in export.lines(connection, scope()).splitlines()]
        trace = json.loads(export.perfetto(connection, scope(sample="g000001-e0-a1")))
    assert len(lines) == 10 and {"sample", "state", "age"} <= set(lines[0])
    assert all(event["dur"] >= 0 for event in trace["traceEvents"] if event["ph"] == "X")
    assert {"version 0", "version 1"} <= {event["name"] for event in trace["traceEvents"]}


def test_a_circle_of_parents_has_an_end():
    spans = [
        {"span_id": name, "parent_id": parent}
        for name, parent in [("a", "b"), ("b", "a"), ("c", "b"), ("d", "gone"), ("e", "e"), ("f", "d")]
    ]
    found = dict(zip("abcdef", depths(spans), strict=True))
    assert found["d"] == 0 and found["f"] == 1 and found["e"] == 0
    assert sorted((found["a"], found["b"])) == [0, 1] and found["c"] == found["b"] + 1


class Compared(str):
    """A span's name that counts with how many others it is compared."""

    count = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Compared.count += 1
        return str.__eq__(self, other)


def test_a_deep_chain_of_parents_is_looked_through_once():
    """A foreign exporter's spans may be each other's parents in a row of any length: not every one is compared with all above it."""
    names = [Compared(f"{number:016x}") for number in range(1_000)]
    chain = [
        {"span_id": name, "parent_id": Compared(parent)} for name, parent in zip(names, ["gone", *names], strict=False)
    ]
    Compared.count = 0
    assert depths(chain[::-1]) == list(range(1_000))[::-1]
    assert Compared.count < 10 * len(names)


def test_an_empty_ledger_has_an_answer_to_everything(books_of):
    with books_of([]).read() as connection:
        for name, question in ANSWERS.items():
            if name != "sample":
                assert question(connection, scope()) is not None
        assert (
            lanes(connection, scope())["bars"]["sample"] == []
            and age(connection, scope())["steps"] == []
            and origin(connection, scope())["slowest"] == []
        )


def test_the_trainers_word_stands_beside_the_tokens_that_it_is_of():
    """C8: targets of a call are its sampled tokens on chosen paths, also where its output is in two nodes."""
    nodes = [
        {"call": -1, "chosen": True, "tokens": 4}, {"call": 0, "chosen": True, "tokens": 2}, {"call": 0, "chosen": True, "tokens": 1},
        {"call": 0, "chosen": False, "tokens": 5}, {"call": 1, "chosen": True, "tokens": 3},
    ]  # fmt: skip
    calls, logprobs, flags = np.array([0, 0, 0, 1]), np.array([-1.0, -2.0, -3.0, -4.0]), np.array([1, 3, 0, 1])
    with_trained(nodes, tokens_seen(2, calls, logprobs, flags))
    assert nodes[1]["trained_logprobs"] == [-1.0, -2.0] and nodes[2]["trained_logprobs"] == [-3.0]
    assert nodes[1]["clipped"] == [False, True] and nodes[1]["kept"] == [True, True] and nodes[2]["kept"] == [False]
    assert "trained_logprobs" not in nodes[3] and "trained_logprobs" not in nodes[4], (
        "1 target of 3 tokens: nobody knows which"
    )


@pytest.mark.parametrize("text", ["def f():\n\treturn 1", "é😀 naïve", "   ", "<|im_start|>user"])
def test_pieces_of_tokens_join_to_their_text(text):
    """Byte-level tokens: a character of several tokens is the last one's piece."""
    tokenizer = Tokenizer(
        models.BPE({name: index for index, name in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, [])
    )
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    ids = tokenizer.encode(text).ids
    found = pieces(ids, tokenizer)
    assert "".join(found) == text and len(found) == len(ids)
