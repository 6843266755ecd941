"""How fast a stream of an environment process is read (B4: a flood costs only its own executions)."""

from services.rollout.gateway.environments import Pace


def test_so_many_pass_in_a_second_and_the_rest_waits_for_the_next():
    """Three a second from 10.0 on: the fourth waits until 11.0, where three more may pass; a quiet time is no credit."""
    pace = Pace(3)
    assert [pace.wait_s(10.0 + n / 10) for n in range(3)] == [0.0, 0.0, 0.0]
    assert round(pace.wait_s(10.4), 6) == 0.6
    assert [pace.wait_s(11.0), pace.wait_s(11.1), pace.wait_s(11.2)] == [0.0, 0.0, 0.0] and pace.wait_s(11.5) == 0.5
    assert [pace.wait_s(60.0) for _ in range(4)] == [0.0, 0.0, 0.0, 1.0]
