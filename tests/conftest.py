"""For all tests: examples that are the same in every run, and the last words of a run's processes beside a failure."""

import pytest
from hypothesis import HealthCheck, settings

from tests import lived

settings.register_profile(
    "same",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("new", settings.get_profile("same"), derandomize=False)
settings.load_profile("same")
"""`pytest --hypothesis-profile new` looks for examples that nobody has tried."""


def pytest_runtest_setup(item: pytest.Item) -> None:
    lived.begin()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    report = yield
    if report.failed:
        report.sections += lived.told()
    return report
