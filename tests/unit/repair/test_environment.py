"""The repair environment: tools, milestones, scores."""

import os

import pytest

from examples.repair.environment import RepairEnvironment, tasks
from examples.repair.packages import TEST_FILE, make_package
from examples.repair.sandbox import SandboxError
from gyre.env import Rollback, ToolCall


def task_of(kind: str):
    return next(t for t in tasks("train", 500, seed=0) if t.task_type == f"repair.{kind}")


@pytest.fixture
def attempt(sandbox):
    """Starts environments and closes them."""
    started = []

    def start(kind: str = "operator"):
        environment = RepairEnvironment(task_of(kind), sandbox)
        started.append(environment)
        environment.reset()
        return environment, make_package(environment.task.seed)

    yield start
    for environment in started:
        environment.close()


def call(environment, tool, /, **arguments):
    return environment.step(ToolCall(call_id="c", name=tool, arguments=arguments))


def mend(environment, package):
    return call(
        environment, "replace", path=package.fault_path, name=package.fault_name, old=package.wrong, new=package.right
    )


@pytest.mark.parametrize("kind", ["operator", "import"])
def test_no_milestone_holds_before_anything_was_done(attempt, kind):
    """D5: what holds at the start pays nothing."""
    environment, _ = attempt(kind)
    score = environment.score()
    assert score.valid and score.outcome == 0.0
    assert score.milestones == dict.fromkeys(environment.milestones, False)


def test_a_mended_package_scores_one_without_submit(attempt):
    """B4: a time-out is scored on the tree that is left."""
    environment, package = attempt()
    call(environment, "read_file", path=package.fault_path)
    assert not mend(environment, package).error
    score = environment.score()
    assert score.outcome == 1.0
    # The tests could be imported from the start, so importing them is not progress.
    assert score.milestones == {
        "fault_file_opened": True, "tests_import": False, "some_tests_pass": True, "all_tests_pass": True,
    }  # fmt: skip
    assert environment.score() == score


def test_mending_an_import_pays_the_import_milestone(attempt):
    """D5"""
    environment, package = attempt("import")
    assert call(environment, "run_tests").content.startswith(f"ERROR {package.fault_path}:1: ModuleNotFoundError")
    mend(environment, package)
    assert environment.score().milestones["tests_import"]
    assert call(environment, "run_tests").content == "OK"


def test_milestones_are_verified_as_they_are_reached(attempt):
    """D3: nothing at first, then the file that holds the fault, then what mending it makes pass; the tests are not run when nothing changed."""
    environment, package = attempt()
    assert environment.verified() == set()
    call(environment, "read_file", path=package.fault_path)
    assert environment.verified() == {"fault_file_opened"}
    runs = environment._sandbox.runs
    call(environment, "list_files")
    assert environment.verified() == {"fault_file_opened"} and environment._sandbox.runs == runs
    mend(environment, package)
    assert environment.verified() == {"fault_file_opened", "some_tests_pass", "all_tests_pass"}


def test_a_compacted_context_keeps_the_newest_results(sandbox):
    """B3: of three results the oldest becomes a note when two are kept; with 0 nothing is left out."""
    for kept, expected in ((2, ["(seen)", "b", "c"]), (0, ["a", "b", "c"]), (9, ["a", "b", "c"])):
        environment = RepairEnvironment(task_of("operator"), sandbox, results_kept=kept)
        messages = [{"role": "user", "content": "x"}, *({"role": "tool", "content": text} for text in "abc")]
        assert [message["content"] for message in environment.compact(messages)] == ["x", *expected]


def test_submitting_ends_the_task_and_success_is_not_taken_from_it(attempt):
    """D5: verified from the tree, never from what the agent says."""
    environment, _ = attempt()
    result = call(environment, "submit")
    assert result.done and environment.score().outcome == 0.0


def test_changing_the_tests_never_counts(attempt):
    """D5: the test file's text is compared."""
    environment, package = attempt()
    result = call(environment, "replace", path=TEST_FILE, name="top", old="import unittest", new="import unittest ")
    assert not result.error
    mend(environment, package)
    score = environment.score()
    assert (
        score.outcome == 0.0 and not score.milestones["all_tests_pass"] and score.evidence["tests_unchanged"] is False
    )


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("format_disk", {}, "no tool"),
        ("read_file", {}, "read_file takes path"),
        ("read_file", {"path": 3}, "path must be a string"),
        ("read_file", {"path": "../../etc/passwd"}, "plain file names"),
        ("read_file", {"path": "/etc/passwd"}, "plain file names"),
        ("read_file", {"path": "nowhere.py"}, "no file"),
        ("run_tests", {"fast": True}, "run_tests takes no arguments"),
        ("replace", {"path": TEST_FILE, "name": "top", "old": "import", "new": None}, "new must be a string"),
        ("replace", {"path": TEST_FILE, "name": "top", "old": "", "new": "x"}, "does not hold"),
        ("replace", {"path": TEST_FILE, "name": "nobody", "old": "x", "new": "y"}, "no function"),
        ("replace", {"path": TEST_FILE, "name": "top", "old": "import", "new": "x" * 70_000}, "too large"),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(attempt, tool, arguments, message):
    environment, _ = attempt()
    result = call(environment, tool, **arguments)
    assert result.error and not result.done and message in result.content
    assert len(result.content) < 120


def test_links_are_not_followed(attempt):
    environment, _ = attempt()
    os.symlink("/etc/passwd", os.path.join(environment._workspace.tree, "link.py"))
    assert call(environment, "read_file", path="link.py").error
    assert "link.py" not in call(environment, "list_files").content


def test_a_replacement_touches_only_the_named_body(attempt):
    environment, package = attempt()
    mend(environment, package)
    assert environment._workspace.files()[package.fault_path] == package.solution


def test_an_evaluation_that_cannot_be_carried_out_is_invalid_and_not_zero(attempt, monkeypatch):
    """B4: a failed evaluation is retried by whoever asked, and never becomes a zero."""
    environment, _ = attempt()

    def broken(files, module):
        raise SandboxError("no fork server")

    monkeypatch.setattr(environment._workspace, "_sandbox", type("Broken", (), {"run": staticmethod(broken)}))
    score = environment.score()
    assert not score.valid and score.evidence == {"error": "no fork server"}
    with pytest.raises(Rollback):  # to the agent's call it is the environment's failure, not the agent's mistake
        call(environment, "run_tests")


def test_evidence_names_what_the_world_was_made_of(attempt):
    """C11"""
    environment, _ = attempt()
    evidence = environment.evidence()
    assert evidence.image_digest.startswith("sha256:") and len(evidence.image_digest) == 71
    assert evidence == environment.evidence() and "python" in evidence.tool_versions
