"""Fuzzing of records, as often as the promise says (B1, B3, B5, B6)."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.trajproc.generated import executions
from tests.unit.trajproc.test_trajproc_fuzz import check


@pytest.mark.slow
@settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(executions(calls_max=8), st.data())
def test_ten_thousand_generated_executions(made, data):
    """B1, B3, B5, B6: no crash, no training token that the policy did not sample, no target twice, whatever arrives in whatever order."""
    check(made, data)
