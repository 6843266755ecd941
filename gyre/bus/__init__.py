"""The bus: subjects, streams and the client. The only place that spells a subject."""

from gyre.bus.blobs import BlobStore
from gyre.bus.client import Bus, Delivery
from gyre.bus.server import NatsServer
from gyre.bus.streams import STREAMS, declare_streams
from gyre.bus.subjects import natural_key, subject_of, subject_pattern

__all__ = [
    "STREAMS",
    "BlobStore",
    "Bus",
    "Delivery",
    "NatsServer",
    "declare_streams",
    "natural_key",
    "subject_of",
    "subject_pattern",
]
