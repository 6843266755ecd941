"""gRPC as every service uses it: server with health, reflection and a key; channels that carry key and trace."""

from gyre.rpc.channel import open_channel
from gyre.rpc.server import MESSAGE_BYTES_MAX, REQUEST_BYTES_MAX, RpcServer, abort_with

__all__ = ["MESSAGE_BYTES_MAX", "REQUEST_BYTES_MAX", "RpcServer", "abort_with", "open_channel"]
