"""A client of EnvironmentService that was not written with gyre.env and sends rubbish (B4, C6, D5).

What cannot be believed is refused or ends its execution as failed(environment_invalid); nobody else notices.
"""

import grpc
import pytest

from gyre.api.rollout.v1 import environments_pb2 as pb
from gyre.api.rollout.v1 import environments_pb2_grpc as rpc
from tests.support import WAIT_S

pytestmark = pytest.mark.asyncio(loop_scope="package")

MB = 1024 * 1024


def ended(ending="completed", reason="submitted", **evaluation) -> pb.Ended:
    said = {"outcome": 1.0, "valid": True, "evidence_json": "{}"} | evaluation
    return pb.Ended(ending=ending, reason=reason, evaluation=pb.Evaluation(**said))


INVALID = {
    "outcome is not a number": (ended(outcome=float("nan")), "must be a number in [0, 1]"),
    "outcome is infinite": (ended(outcome=float("inf")), "must be a number in [0, 1]"),
    "outcome is 7": (ended(outcome=7), "outcome is 7.0"),
    "outcome is negative": (ended(outcome=-0.5), "outcome is -0.5"),
    "evidence is no JSON": (ended(evidence_json="{looked: 1}"), "evidence_json is not JSON"),
    "evidence is a list": (ended(evidence_json="[1]"), "must be a JSON object"),
    "evidence is NaN": (ended(evidence_json='{"a": NaN}'), "NaN is no JSON"),
    "evidence is infinite": (ended(evidence_json='{"a": 1e999}'), "too large a number"),
    "evidence is a huge number": (ended(evidence_json=f'{{"a": {10**40}}}'), "numbers of 64 bits"),
    "evidence is half a character": (ended(evidence_json='{"a": "\\ud800"}'), "Unicode text"),
    "evidence is deep": (ended(evidence_json='{"a": ' + "[" * 900 + "]" * 900 + "}"), "nested more than 64 deep"),
    "evidence is deeper": (ended(evidence_json="[" * 60_000), "evidence_json is not JSON"),
    "evidence is 2 MB": (ended(evidence_json='{"a": "' + "x" * 2 * MB + '"}'), "at most 65536 bytes"),
    "many milestones": (ended(milestones={f"m{index}": True for index in range(200_000)}), "at most 64 are taken"),
    "milestone without weight": (ended(milestones={"a": True}), "milestone a has no weight"),
    "milestone without name": (ended(milestones={"": True}, milestone_weights={"": 0.1}), "letters, digits"),
    "milestone weighs 9": (ended(milestone_weights={"a": 9}), "a number in [0, 1]"),
    "milestone of another": (ended(milestone_turns={"a": 1}), "milestone a has no weight"),
    "milestone before the start": (ended(milestone_turns={"a": -1}, milestone_weights={"a": 0.1}), "must be from 0 to"),
    "unknown ending": (ended("won"), "one of completed, timed_out, failed"),
    "no ending": (pb.Ended(), "one of completed, timed_out, failed"),
    "reason is a sentence": (ended(reason="I did it"), "one lower-case word"),
    "reason is long": (ended(reason="x" * MB), "one lower-case word"),
    "negative calls": (pb.Ended(ending="completed", reason="submitted", external_calls=-5), "external_calls is -5"),
}
"""What is said → what the ending's detail says about it."""


async def test_endings_that_cannot_be_believed_are_failures_with_their_cause(system):
    """Each of them: failed(environment_invalid), accepted so that it is not sent again, one ending, nothing to learn from."""
    double = await system.attach(slots=64)
    names = {mode: await system.submit("", double.name) for mode in INVALID}
    for mode, (said, words) in INVALID.items():
        _, attempt = await double.begin(names[mode])
        await double.say(names[mode], attempt, ended=said)
        ending = await system.ending(names[mode])
        assert (ending.ending, ending.reason) == ("failed", "environment_invalid"), (mode, ending)
        assert ending.evaluation is None and words in ending.detail and len(ending.detail) <= 2000, (
            mode,
            ending.detail,
        )
    await double.detach()


async def test_what_is_said_twice_or_too_early_ends_once(system):
    """The first Ended decides. One before Started: an environment that never came up cannot have completed anything."""
    double = await system.attach()
    execution, _, attempt = await system.begin(double)
    for said in (ended(outcome=0.5), ended(outcome=1.0), pb.Ended(ending="failed", reason="environment_error")):
        await double.say(execution, attempt, ended=said)
    for _ in range(3):
        await double.next("accepted")
    assert (await system.ending(execution)).evaluation.outcome == 0.5
    early = await system.submit("", double.name)
    message = await double.next("assignment")
    await double.say(early, message.attempt, ended=ended())
    await double.say(early, message.attempt, started=pb.Started())
    ending = await system.ending(early)
    assert (ending.reason, ending.evaluation) == ("environment_invalid", None) and "never said Started" in ending.detail
    await system.run.heard_all()
    assert [f.execution_id for f in system.endings()].count(execution) == 1
    await double.detach()


async def test_words_about_what_is_not_ones_own_are_refused_with_a_code(system):
    """Unknown execution, older and newer attempt, another environment's execution, no body, a second Hello: refused; the execution goes on."""
    double, other = await system.attach(), await system.attach()
    execution, _, attempt = await system.begin(double)
    rubbish = [
        (double, "g999999-e0", 1, {"ended": ended()}, "not_found"),
        (double, "", 0, {"ended": ended()}, "not_found"),
        (double, "x" * MB, -7, {"started": pb.Started()}, "not_found"),
        (double, execution, attempt - 1, {"ended": ended()}, "conflict"),
        (double, execution, attempt + 1, {"ended": ended()}, "conflict"),
        (other, execution, attempt, {"ended": ended()}, "conflict"),
        (other, execution, attempt, {"started": pb.Started()}, "conflict"),
        (double, execution, attempt, {}, "invalid_input"),
        (double, execution, attempt, {"hello": pb.Hello(environment="e", slots=1, instance_id="i")}, "conflict"),
    ]
    for speaker, name, number, body, code in rubbish:
        await speaker.say(name, number, **body)
        refused = (await speaker.next("refused")).refused
        assert refused.code == code and 0 < len(refused.message) <= 2000, (body, refused)
    await double.say(execution, attempt, ended=ended())
    assert (await system.ending(execution)).evaluation.outcome == 1.0
    await double.detach()
    await other.detach()


async def test_a_start_that_says_too_much_ends_its_execution(system):
    double = await system.attach()
    execution = await system.submit("", double.name)
    message = await double.next("assignment")
    await double.say(execution, message.attempt, started=pb.Started(image_digest="x" * MB))
    assert (await double.next("refused")).refused.code == "invalid_input"
    ending = await system.ending(execution)
    assert ending.reason == "environment_invalid" and "at most 65536" in ending.detail
    await double.detach()


@pytest.mark.parametrize(
    "first, words",
    [
        (pb.AttachRequest(heartbeat=pb.Heartbeat()), "must be Hello"),
        (pb.AttachRequest(execution_id="e", attempt=1, ended=ended()), "must be Hello"),
        (pb.AttachRequest(), "must be Hello"),
        (pb.AttachRequest(hello=pb.Hello()), "slots is 0"),
        (pb.AttachRequest(hello=pb.Hello(environment="e", instance_id="i", slots=-1)), "slots is -1"),
        (pb.AttachRequest(hello=pb.Hello(environment="e", instance_id="i", slots=2**31 - 1)), "slots is 2147483647"),
        (pb.AttachRequest(hello=pb.Hello(environment="", instance_id="i", slots=1)), "must name its environment"),
        (pb.AttachRequest(hello=pb.Hello(environment="e" * MB, instance_id="i", slots=1)), "too large"),
    ],
)  # fmt: skip
async def test_a_stream_that_does_not_begin_with_a_good_hello_is_refused(system, first, words):
    async with _channel(system) as channel:
        call = rpc.EnvironmentServiceStub(channel).Attach(iter([first]), timeout=WAIT_S)
        messages = [message async for message in call]
    assert len(messages) == 1 and words in messages[0].refused.message


async def test_a_wrong_key_is_told_so(system):
    async with _channel(system, "no-key") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            async for _ in rpc.EnvironmentServiceStub(channel).Attach(iter([pb.AttachRequest()]), timeout=WAIT_S):
                pass
    assert error.value.code() == grpc.StatusCode.UNAUTHENTICATED and "authorization" in error.value.details()


@pytest.mark.parametrize("place", ["first message", "after hello"])
async def test_100_megabytes_are_refused_by_the_transport_and_stay_out_of_memory(system, place):
    """The gateway's limit of 4 MiB is checked before a message is read; the stream ends, the gateway goes on."""
    before = system.memory_bytes()
    huge = pb.AttachRequest(execution_id="e", attempt=1, ended=pb.Ended(detail="x" * 100 * MB))
    hello = pb.AttachRequest(hello=pb.Hello(environment="huge", instance_id=place, slots=1))
    key = ("authorization", f"Bearer {system.run.environment_key}")
    options = [("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(system.run.folder.endpoint("rollout"), options=options) as channel:
        said = [huge] if place == "first message" else [hello, huge]
        call = rpc.EnvironmentServiceStub(channel).Attach(iter(said), metadata=(key,), timeout=WAIT_S)
        try:
            heard = [message.WhichOneof("body") async for message in call]
            assert heard == ["welcome"]
        except grpc.aio.AioRpcError as error:
            assert error.code() in (
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                grpc.StatusCode.UNKNOWN,
                grpc.StatusCode.UNAVAILABLE,
            )
    assert system.memory_bytes() < before + 50 * MB
    double = await system.attach()
    await double.detach()


async def test_a_flood_of_heartbeats_keeps_nobody_waiting(system):
    """20 000 life signs at once from one process; an execution of another runs its course meanwhile."""
    double, flooding = await system.attach(), await system.attach()
    execution, _, attempt = await system.begin(double)
    before = system.memory_bytes()
    for index in range(20_000):
        flooding._outgoing.put_nowait(pb.AttachRequest(request_id=f"{index}", heartbeat=pb.Heartbeat()))
    await double.say(execution, attempt, ended=ended())
    assert (await system.ending(execution)).ending == "completed"
    assert system.memory_bytes() < before + 50 * MB
    await double.detach()
    await flooding.detach()


async def test_nothing_is_left_over(system):
    """Every lease acknowledged, one ending for each execution, no defect in the log."""
    await system.no_lease_left()
    await system.run.heard_all()
    names = [fact.execution_id for fact in system.endings()]
    assert len(names) == len(set(names))
    assert "a defect" not in system.log("services.rollout") and "Traceback" not in system.log("services.rollout")


def _channel(system, key: str = ""):
    from gyre.rpc import open_channel

    return open_channel(system.run.folder.endpoint("rollout"), key or system.run.environment_key)
