"""How a service ends: which error is told, and with which exit code."""

import pytest

from gyre.config import store
from gyre.config.load import parse
from gyre.errors import GaveUp, NotFound
from gyre.rpc.auth import ROLES, key_path, make_rpc_keys
from gyre.run_folder import RunFolder
from gyre.service import Context, gyre_error


def test_an_error_of_a_task_group_is_told_as_if_it_had_come_alone():
    """A task of a group, in a group of another: the message and the exit code are those of what Gyre raised, not of the group."""
    cause = GaveUp("three times in vain")
    whole = ExceptionGroup("outer", [OSError("else"), ExceptionGroup("inner", [cause])])
    assert gyre_error(whole) is cause and gyre_error(cause) is cause
    assert gyre_error(ExceptionGroup("defects", [KeyError("x")])) is None and gyre_error(KeyError("x")) is None


@pytest.mark.parametrize("role", ROLES)
def test_a_service_whose_keys_are_gone_does_not_listen(tmp_path, role):
    """Without them it would be open to everybody."""
    folder = RunFolder(tmp_path)
    folder.make()
    store(parse({"run": {"name": "t"}, "model": {"path": "none"}}, "test"), folder.config_file)
    folder.write_endpoints({"scheduler": "127.0.0.1:0"})
    make_rpc_keys(folder.keys)
    context = Context("scheduler", folder, None)
    assert set(context.rpc_keys()) == set(ROLES)
    key_path(folder.keys, role).unlink()
    with pytest.raises(NotFound, match=f"grpc-{role}"):
        context.rpc_server("scheduler")
