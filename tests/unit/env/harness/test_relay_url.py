"""A harness that has no key, or one of its own, is told the relay's in its URL (B1)."""

import aiohttp

from gyre.keyed_url import with_key

from .test_relay import Gateway, cut, plain, quick, relayed  # noqa: F401  a fixture


async def test_a_harness_may_be_told_its_key_in_the_url(caplog):
    """It has no key, or sends one that it was built with. The gateway gets the attempt's, and a URL without any."""
    caplog.set_level("DEBUG")
    async with (
        Gateway(cut, plain({"error": {"code": "turns_exceeded", "message": "made"}}, 400)) as gateway,
        relayed(gateway) as (relay, _),
    ):
        async with aiohttp.ClientSession(headers={"authorization": "Bearer sk-own"}) as http:
            url = with_key(f"{relay.base}/v1", relay.key)
            async with http.post(f"{url}/chat/completions?a=1", json={"a": 1}) as reply:
                assert reply.status == 400
            async with http.post(
                with_key(relay.base, "attempts-key") + "/v1/messages", headers={"x-api-key": relay.key}
            ) as reply:
                assert reply.status == 401
            async with http.head(with_key(relay.base, relay.key)) as reply:
                assert reply.status == 400
        assert [(path, headers["authorization"]) for path, headers, _ in gateway.seen] == [
            ("/v1/chat/completions?a=1", "Bearer attempts-key"), ("/v1/chat/completions?a=1", "Bearer attempts-key"), ("/", "Bearer attempts-key"),
        ]  # fmt: skip
        assert (
            relay.refusals == ["400 turns_exceeded: made"]
            and "is asked again" in caplog.text
            and relay.key not in caplog.text
        )
