"""What the tool gateway lets others know of a call: the tape its words without secrets, a trace its name and how it went (C4, E)."""

import base64
import gzip
import zlib

import pytest

from gyre.env.outside import Outside, Rules
from tests.kept_spans import attributes_of, kept_spans
from tests.unit.env.test_outside import Far, ask, gateway, journal


@pytest.mark.parametrize("kind", ["plain", "gzip", "deflate", "binary", "utf-16", "multipart"])
async def test_a_secret_in_a_body_of_any_kind_is_not_on_record_and_reaches_the_far_end(tmp_path, kind):
    """Unpacked where it is packed, for rules see no secret in a packed body, and as text where it is none."""
    path = tmp_path / "e0.tape"
    said = b'{"client_secret": "hunter2", "n": 1}'
    body, headers = {
        "plain": (said, {}),
        "gzip": (gzip.compress(said), {"content-encoding": "gzip"}),
        "deflate": (zlib.compress(said), {"content-encoding": "deflate"}),
        "utf-16": ('{"password": "hunter2"}'.encode("utf-16"), {"content-type": "application/json; charset=utf-16"}),
        "binary": (b"\xff\xfe password=hunter2 \x00\xff", {}),
        "multipart": (
            b'--x\r\nContent-Disposition: form-data; name="password"\r\n\r\nhunter2\r\n--x\r\n\r\n\xff\r\n--x--',
            {},
        ),
    }[kind]
    async with Far() as far, gateway() as made:
        first = journal(path)
        way = made.admit("e0-a1", lambda: first)
        assert (await ask(way, f"{far.base}/echo", "POST", data=body, headers=headers))[0] == 200
        assert b"hunter2" in far.bodies[0].replace(b"\0", b"") and "content-encoding" not in far.headers[0]
        assert far.bodies[0] == (said if "content-encoding" in headers else body)
        assert "hunter2" not in path.read_text() and base64.b64encode(body)[:20].decode() not in path.read_text()
        first.close()


async def test_a_body_that_cannot_be_unpacked_is_refused_and_never_sent():
    async with Far() as far, gateway(Outside(rules=Rules(bytes_max=100_000, hosts=("127.0.0.1",)))) as made:
        known = journal()
        way = made.admit("e0-a1", lambda: known)
        for kind, body in (
            ("br", b"x"),
            ("gzip", b"no gzip"),
            ("gzip", gzip.compress(bytes(10**6))),
            ("gzip", gzip.compress(b"cut off")[:-9]),
        ):
            status, said, headers = await ask(
                way, f"{far.base}/a", "POST", data=body, headers={"content-encoding": kind}
            )
            assert (status, headers["x-gyre-error"]) == (415, "invalid_input"), said
        assert far.asked == []


async def test_each_call_is_a_span_of_its_executions_trace_and_tells_no_secret():
    """From its arrival, waiting for its turn included, to its reply; what was said stays on the tape."""
    with kept_spans() as kept:
        async with Far() as far, gateway() as made:
            known = journal(quota=5)
            traceparent = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
            way = made.admit("e0-a1", lambda: known, traceparent=traceparent)
            await ask(way, f"{far.base}/a?api_key=hunter2")
            await ask(way, "http://127.0.0.1:1/nobody")
    good, bad = kept.spans
    assert good.name == "outside http 127.0.0.1" and good.trace_id.hex() == "1" * 32
    assert good.parent_span_id.hex() == "2" * 16 and [event.name for event in good.events] == ["its turn"]
    assert attributes_of(good) == {
        "gyre.outside.failed": False,
        "gyre.outside.repeated": False,
        "gyre.outside.quota_left": 4,
    }
    assert attributes_of(bad)["gyre.outside.failed"] and "hunter2" not in str(good)
