"""Keys of the gRPC services."""

import stat

from gyre.rpc.auth import ROLES, is_allowed, key_path, make_rpc_keys, read_key

ATTACH = "/gyre.api.rollout.v1.EnvironmentService/Attach"
SUBMIT = "/gyre.api.scheduler.v1.SchedulerService/SubmitTasks"
KEYS = {"service": "s", "environment": "e"}


def test_an_environment_may_attach_and_nothing_else():
    """E (security): least privilege for untrusted environments."""
    assert is_allowed(ATTACH, "Bearer e", KEYS)
    assert not is_allowed(SUBMIT, "Bearer e", KEYS)
    assert is_allowed(SUBMIT, "Bearer s", KEYS)


def test_a_wrong_or_missing_key_opens_nothing_but_health():
    assert not is_allowed(ATTACH, "", KEYS)
    assert not is_allowed(SUBMIT, "Bearer x", KEYS)
    assert is_allowed("/grpc.health.v1.Health/Check", "", KEYS)


def test_an_empty_key_opens_nothing():
    """Whoever says nothing would have it."""
    for said in ("", "Bearer ", "Bearer"):
        assert not is_allowed(SUBMIT, said, {"service": "", "environment": "e"})
        assert not is_allowed(ATTACH, said, {"service": "s", "environment": ""})


def test_keys_are_made_once_and_are_their_owners_only(tmp_path):
    make_rpc_keys(tmp_path / "keys")
    first = [read_key(tmp_path / "keys", role) for role in ROLES]
    make_rpc_keys(tmp_path / "keys")
    assert [read_key(tmp_path / "keys", role) for role in ROLES] == first
    assert len(set(first)) == len(ROLES)
    assert all(stat.S_IMODE(key_path(tmp_path / "keys", role).stat().st_mode) == 0o600 for role in ROLES)
