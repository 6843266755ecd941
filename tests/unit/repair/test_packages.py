"""The generated packages of the repair example."""

from examples.repair.environment import tasks
from examples.repair.functions import KINDS
from examples.repair.packages import TEST_FILE, body_of, digest_of, make_package, split_of

SEEDS = range(400)


def suite_passes(files: dict[str, str], sandbox) -> bool:
    return sandbox.run(files, TEST_FILE.removesuffix(".py")).all_passed


def test_the_fault_makes_the_tests_fail_and_the_original_passes(sandbox):
    """D5: success can be told from the system state, for every kind of fault."""
    kinds = set()
    for seed in range(60):
        package = make_package(seed)
        kinds.add(package.kind)
        assert not suite_passes(package.files, sandbox), seed
        assert suite_passes({**package.files, package.fault_path: package.solution}, sandbox), seed
    assert kinds == set(KINDS)  # sixty seeds are enough to meet all seven kinds


def test_the_repair_is_replacing_the_first_wrong_fragment_in_the_named_body():
    """D12: what demonstrations do and what the tool does lead exactly to the original."""
    for seed in SEEDS:
        package = make_package(seed)
        text = package.files[package.fault_path]
        start, end = body_of(text, package.fault_name)
        at = text.index(package.wrong, start, end)
        assert text[:at] + package.right + text[at + len(package.wrong) :] == package.solution


def test_packages_have_two_to_four_files_and_are_a_function_of_the_seed():
    """C11: the seed alone reproduces the world."""
    for seed in SEEDS:
        package = make_package(seed)
        assert package == make_package(seed)
        assert len(package.files) == package.level + 1  # one module a level, and the tests
        assert package.digest == digest_of(package.files)


def test_training_and_held_out_tasks_share_neither_seeds_nor_faulty_source():
    """D12: the evaluation asks for packages that neither demonstrations nor training have shown."""
    train, heldout = list(tasks("train", 400, seed=1)), list(tasks("heldout", 150, seed=1))
    assert not {t.seed for t in train} & {t.seed for t in heldout}

    def modules(task):
        files = make_package(task.seed).files
        return digest_of({path: text for path, text in files.items() if path != TEST_FILE})

    assert not {modules(t) for t in train} & {modules(t) for t in heldout}
    assert {split_of(make_package(t.seed)) for t in heldout} == {"heldout"}


def test_tasks_are_repeatable_distinct_and_typed_by_their_fault():
    """C10, C12: task types are what quotas and bills are kept by."""
    first, again = list(tasks("train", 50, seed=3)), list(tasks("train", 50, seed=3))
    assert first == again
    assert len({t.task_id for t in first}) == 50
    assert all(t.task_type == f"repair.{make_package(t.seed).kind}" for t in first)
    assert first != list(tasks("train", 50, seed=4))
