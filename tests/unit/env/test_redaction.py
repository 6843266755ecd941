"""Secrets never reach the record (evidence: redacted by rule before writing)."""

import json
import re
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre.env import StepResult, ToolCall
from gyre.env.recording import MASK, Journal, Redactor, Tape
from gyre.env.recording.entries import Called, Checkpoint, Reply
from gyre.env.recording.redaction import LARGE_CHARS, PATTERNS
from gyre.errors import ConfigError
from tests.unit.env.regex_steps import Steps

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
WORDS = st.text(LETTERS, min_size=24, max_size=40).map("q{}".format)
SECRETS = st.one_of(
    WORDS.map("Bearer {}".format), WORDS.map("sk-{}".format), WORDS.map("ghp_{}".format), WORDS.map("github_pat_{}".format),
    WORDS.map("xoxb-{}".format), WORDS.map(lambda w: f"AIza{w}abcdef"), WORDS.map(lambda w: f"eyJ{w}.{w}.{w}"),
    WORDS.map(lambda w: f"-----BEGIN RSA PRIVATE KEY-----\n{w}\n-----END RSA PRIVATE KEY-----"), WORDS.map("api_key={}".format),
    WORDS.map("password: '{}'".format), WORDS.map('"client_secret": "{}"'.format), WORDS.map("https://user:{}@host/x".format),
    WORDS.map("CORP-{}".format), WORDS.map("X-Api-Key: {}".format), WORDS.map("http://h:1/key/gyre-{}.x/v1".format),
    WORDS.map("Authorization: Basic {}=".format), WORDS.map('{{"password": "{}'.format),
)  # fmt: skip
HARMLESS = st.text(st.characters(codec="utf-8"), max_size=20)
TEXTS = st.lists(st.one_of(SECRETS, HARMLESS), max_size=4).map("\n".join)
VALUES = st.recursive(
    st.one_of(TEXTS, st.none(), st.integers(-9, 9), st.booleans()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(TEXTS, inner, max_size=3),
        inner.map(lambda value: json.dumps(value)),
    ),
    max_leaves=8,
)
CORP = r"\bCORP-[A-Za-z0-9]{8,}"
RULES = [re.compile(pattern) for pattern in (*PATTERNS, CORP)]


def leaves(value):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    elif isinstance(value, str):
        yield value


@given(VALUES, TEXTS, TEXTS)
@settings(max_examples=100, deadline=None)
def test_nothing_that_matches_a_rule_reaches_the_file(value, content, name):
    """In whatever it stands: arguments, results, messages, JSON inside JSON; neither a text that matches, nor what it was in the input."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.tape"
        tape = Tape(path, Redactor([CORP]), sync=False)
        tape.append(Called(ordinal=1, name=name, arguments=json.dumps(value), arguments_digest="", content=content))
        tape.append(Reply(turn=1, message={"role": "assistant", "content": content, "arguments": value}))
        tape.append(Checkpoint(ordinal=1, turn=1, messages=json.dumps([{"role": "tool", "content": value}])))
        tape.close()
        written = path.read_bytes().decode()
    for line in written.strip("\n").split("\n"):
        for text in leaves(json.loads(line[9:])):
            assert not any(rule.search(text) for rule in RULES), text
    for word in re.findall(r"q[A-Za-z0-9]{24,}", "\n".join([content, name, *leaves(value)])):
        assert word not in written


@pytest.mark.parametrize(
    "key", ["Authorization", "api_key", "X-API-Key", "Set-Cookie", "PASSWORD", "token", "X-Vault-Token", "SecretAccessKey", "accessToken",
            "db_password"],
)  # fmt: skip
def test_fields_named_as_secrets_are_redacted_whatever_is_in_them(key):
    redactor = Redactor(keys=["pin"])
    assert redactor.value({key: "abc", "pin": 1234, "n": {key: ["a"]}}) == {key: MASK, "pin": MASK, "n": {key: MASK}}
    assert json.loads(redactor.document(json.dumps({key: "abc", "x": 1}))) == {key: MASK, "x": 1}
    assert redactor.document('{"x":  1}') == '{"x":  1}', "what holds no secret stays as it was, spaces too"


@pytest.mark.parametrize(
    "key", ["nextPageToken", "eos_token", "tokens", "max_tokens", "keys", "cookies_seen", "passwords"]
)
def test_fields_that_only_sound_like_secrets_stay(key):
    assert Redactor().value({key: "abc"}) == {key: "abc"} and Redactor().value({"token": True}) == {"token": True}


@pytest.mark.parametrize(
    "text",
    ["GET /x?q=1&token=hunter2 HTTP/1.1", "https://s3/x?X-Amz-Signature=hunter2&y=1", "code=hunter2&grant_type=authorization_code",
     "Cookie: sid=hunter2; theme=dark", '"Set-Cookie: sid=hunter2"', "<ns:Password>hunter2</ns:Password>", "<api-key>hunter2</api-key>",
     'form-data; name="password"\r\n\r\nhunter2\r\n--x', 'name="api_key"\r\nContent-Type: text/plain\r\n\r\nhunter2',
     json.dumps({"a": json.dumps({"b": "?sig=hunter2"})}), "password=hunter2 \xff\xfe"],
)  # fmt: skip
def test_secrets_of_the_webs_own_forms_go(text):
    assert "hunter2" not in Redactor().document(text) and MASK in Redactor().document(text)


@pytest.mark.parametrize(
    "text",
    ["the token was lost", "password", "basic arithmetic", "2 + 2", "sk-", "https://host/a:b", "secret: ",
     "x = password_of(user)", "bearer responsibilities", "https://host/x?q=token", "cookie: chocolate", "<token>", "a ? b : key = 3",
     'name="user"\r\n\r\nann',
     ""],
)  # fmt: skip
def test_ordinary_texts_stay(text):
    assert Redactor().text(text) == text


@pytest.mark.parametrize("pattern", ["(", "x*", "", r"\w+", "redacted"])
def test_rules_that_match_everything_or_nothing_are_refused(pattern):
    with pytest.raises(ConfigError, match="redaction rule"):
        Redactor([pattern])


def test_a_text_whose_replacement_matches_again_is_redacted_whole():
    """`aabb` → each round removes the inner `ab` and leaves one around it; after five rounds nothing may be left of it."""
    redactor = Redactor([r"a(\[redacted\])*b"])
    assert "ab" not in redactor.text("a" * 20 + "b" * 20) and not re.search(
        r"a(\[redacted\])*b", redactor.text("a" * 20 + "b" * 20)
    )


def test_bad_input_nested_deep_or_with_lone_surrogates():
    redactor = Redactor()
    assert redactor.document("[" * 100_000) in (MASK, "[" * 100_000)
    assert redactor.text("\ud800x") == "?x"


UNITS = (
    "eyJ-", "eyJabcdefgh.", "eyJ-eyJabcdefgh-.", "cookie:a ", "cookie\\", "cookie: a=", "a", " ", "\\", "<password>", "<a:", "bearer ", "bearer a",
    "authorization: basic ", "authorization: ", "://a:", "://", "a:", "?token=", "&key=ab", "name=password\n", "name=password\na:name=", "a:b\n",
    "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "-----END A", "api_key=", "secret\\", "secret= ", "sk-", "ghp_", "AKIA", "xoxb-", "\n",
)  # fmt: skip
PREFIXES = (
    "",
    "cookie: ",
    "bearer ",
    "name=password\n",
    "<token>",
    "secret",
    "-----BEGIN PRIVATE KEY-----",
    "?token=",
    "://a:",
    "authorization ",
)


@pytest.mark.parametrize("pattern", PATTERNS, ids=range(len(PATTERNS)))
def test_each_rule_takes_steps_in_proportion_to_the_text_whatever_it_is(pattern):
    """Whoever is recorded chooses the text: of `eyJ-eyJ-…` 128 KiB once held everybody up for half a minute. Twice the text, at most twice the steps
    and what is near its ends."""
    steps, words = Steps(pattern), PATTERNS[pattern]
    for prefix in PREFIXES:
        for unit in UNITS:
            short, long = (prefix + unit * (size // len(unit)) for size in (240, 480))
            if any(word in long.lower() for word in words):
                few, many = steps.through(short), steps.through(long)
                assert many <= 2.2 * few + 2000, (prefix, unit, few, many)


def test_a_rule_whose_steps_grow_faster_is_noticed():
    old = r"(?<![A-Za-z0-9_])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"
    few, many = (Steps(old).through("eyJ-" * count) for count in (100, 200))
    assert many > 3 * few


@given(
    st.lists(st.sampled_from(["eyJ", "abcdefgh", "-", ".", " ", "\\n", "x", "ABCDEFGHIJK"]), max_size=14).map("".join)
)
def test_a_token_is_found_where_it_begins_and_what_stands_before_it_stays(text):
    """The same that the rule says in one go, which takes quadratic time."""
    plain = re.compile(r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrtbf]))eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*")
    assert Redactor().text(text) == plain.sub(MASK, text)


async def test_large_texts_are_looked_through_aside_and_once(tmp_path):
    """Neither a large request nor a large reply holds up the loop that all executions share."""
    looked = []

    class Watched(Redactor):
        def _document(self, text):
            if len(text) >= LARGE_CHARS:
                looked.append(threading.current_thread() is threading.main_thread())
            return super()._document(text)

    journal = Journal(Tape(tmp_path / "x.tape", Watched(), sync=False))
    journal.begin("e0-a1", is_replay=False)
    journal.keep(Checkpoint(ordinal=0, turn=0, messages="[]"))

    async def out():
        return StepResult(content="secret=hunter2 " + "y" * LARGE_CHARS)

    asked = ToolCall(call_id="", name="http", arguments={"body": "password=hunter2 " + "x" * LARGE_CHARS})
    said = await journal.call(asked, out, is_outside=True)
    journal.close()
    assert "hunter2" not in said.content and "hunter2" not in (tmp_path / "x.tape").read_text()
    assert len(looked) == 4 and not any(looked), "the body, all arguments and the body in them, the reply"
