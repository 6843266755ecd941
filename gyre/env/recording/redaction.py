"""Secrets are replaced before anything is written: by the name of the field that holds them, and by what they look like. Pure."""

import json
import re
from collections import deque
from collections.abc import Iterable
from typing import Any

from gyre.errors import ConfigError

MASK = "[redacted]"
KEYS = (
    "authorization", "api_key", "token", "secret", "password", "passwd", "passphrase", "cookie", "private_key", "access_key", "secret_key",
    "credentials",
)  # fmt: skip
"""Fields whose names end so hold secrets, whatever they look like: `X-Vault-Token`, `SecretAccessKey`, `set_cookie`. Upper and lower case, `-`, `_`
and none are the same."""
NO_SECRETS = (
    "pagetoken", "nexttoken", "continuationtoken", "synctoken", "forwardtoken", "backwardtoken", "bostoken", "eostoken", "padtoken", "unktoken",
    "septoken", "clstoken", "masktoken",
)  # fmt: skip
"""Ends of names that end as secrets' do: where a list goes on, and the words of a tokenizer, which an agent needs to see."""
_START = r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrtbf])|(?<=\\u[0-9a-fA-F]{4}))"
"""A word begins here, also after an escape in a piece of JSON (`\nBearer …`), where `\b` sees none."""
PATTERNS = {
    rf"(?ai){_START}authorization\W{{1,8}}(?:basic|bearer|token|digest)\s+[^\s\"',;\\]+": ("authorization",),
    rf"(?ai){_START}bearer\s+(?:(?=[^\s\"']*\d)[A-Za-z0-9._~+/=-]{{8,}}|[A-Za-z0-9._~+/=-]{{24,}})": ("bearer",),
    rf"{_START}sk-[A-Za-z0-9_-]{{16,}}": ("sk-",),
    rf"{_START}gh[pousr]_[A-Za-z0-9]{{20,}}": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    rf"{_START}github_pat_[A-Za-z0-9_]{{20,}}": ("github_pat_",),
    rf"{_START}(?:AKIA|ASIA)[0-9A-Z]{{16}}(?![0-9A-Z])": ("akia", "asia"),
    rf"{_START}xox[abeprs]-[A-Za-z0-9-]{{10,}}": ("xox",),
    rf"{_START}AIza[0-9A-Za-z_-]{{30,}}": ("aiza",),
    r"(?<=/key/)(?:gyre|relay)-[A-Za-z0-9_.-]{16,}": ("/key/",),
    # Looked for from where a run of such characters begins, and where another run follows: else each `eyJ` of a run would look for its end.
    r"(?<![A-Za-z0-9_-])(?=[A-Za-z0-9_-]{11,}+\.[A-Za-z0-9_-]{8,}+\.)[A-Za-z0-9_-]*?"
    rf"{_START}(?P<secret>eyJ[A-Za-z0-9_-]{{8,}}+\.[A-Za-z0-9_-]{{8,}}+\.[A-Za-z0-9_-]*+)": ("eyj",),
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)": ("private key-----",),
    r"(?<=://)[^/\s:@]{1,200}:[^/\s@]{1,200}(?=@)": ("://",),
    r"(?ai)(?:[?&]|\A)(?:token|key|sig|signature|code|auth|jwt|sid|session|pass|pwd|x-(?:amz|goog|ms)-(?:signature|credential|security-token))="
    r"(?!\[redacted\])[^&\s\"'#;\\]{3,}": ("=",),
    rf"(?ai){_START}(?:set-)?cookie\\*[\"']?\s{{0,8}}:\s{{0,8}}(?!\[redacted\])[\w.-]+=[^\r\n\"\\]{{3,}}": ("cookie",),
    r"(?ai)<(?:[\w.-]{1,40}:)?(?:[\w.-]{0,40}(?:password|secret|token|api[-_]?key))>(?!\[redacted\])[^<]{3,}(?=<)": (
        "</",
    ),
    r"(?ai)name=\\?[\"']?[\w.-]{0,40}(?:password|passwd|secret|token|api[-_]?key)\\?[\"']?(?:\r?\n[\w-]+:[^\r\n]{0,200}){0,4}(?:\r?\n){2}"
    r"(?!\[redacted\])[^\r\n]{3,}": ("name=",),
    rf"(?ai){_START}(?:x[-_])?(?:authorization|api[-_]?key|(?:access|refresh|auth)[-_]?token|client[-_]?secret|secret|password|passwd)"
    r"\\*[\"']?\s{0,8}[:=]\s{0,8}\\*[\"']?(?!\[redacted\])[^\s\"',;\\]{3,}": (
        "auth",
        "api",
        "token",
        "secret",
        "passw",
    ),
}
"""Credentials in headers, keys of well-known services, an execution's own in its URL (gyre/keyed_url.py),
JSON web tokens, private keys, user:password in an address, fields of an address's query
and of a form, cookies, elements of XML, parts of a multipart body, `api_key=…` in a text. Where there is a group `secret`, that is replaced.
Whoever is recorded also chooses what is looked through, so each takes time in proportion to the text, whatever that is.
To each what a text must hold, in lower case, to match it: looking for that costs a hundredth of looking for the rule."""
ROUNDS_MAX = 5
LARGE_CHARS = 64 * 1024
"""Texts that take long enough for others to notice."""
KNOWN_MAX = 4


class Redactor:
    """Replaces what matches by MASK. What it returns matches none of its rules."""

    def __init__(self, patterns: Iterable[str] = (), keys: Iterable[str] = ()) -> None:
        """`patterns` (regular expressions) and `keys` (names of fields) come on top of the built-in ones. Raises ConfigError."""
        self._rules: list[tuple[re.Pattern[str], tuple[str, ...]]] = []
        for pattern, needles in {**PATTERNS, **dict.fromkeys(patterns, ("",))}.items():
            try:
                rule = re.compile(pattern)
            except re.error as error:
                raise ConfigError(f"redaction rule {pattern!r} is no regular expression: {error}") from error
            if rule.search("") or rule.search(MASK):
                raise ConfigError(f"redaction rule {pattern!r} matches the empty text or {MASK}, so everything")
            self._rules.append((rule, needles))
        self._known: deque[str] = deque(maxlen=KNOWN_MAX)
        """Large texts that `document` has returned: what comes back as the very same object needs no second look."""
        self._ends = tuple(_plain(key) for key in KEYS)
        self._keys = {_plain(key) for key in keys}

    def text(self, text: str) -> str:
        """Without what matches a rule, also what only matches after others were replaced."""
        text = text.encode(errors="replace").decode()
        low = text.lower()
        rules = [rule for rule, needles in self._rules if any(needle in low for needle in needles)]
        for _ in range(ROUNDS_MAX):
            before = text
            for rule in rules:
                text = rule.sub(_masked if "secret" in rule.groupindex else MASK, text)
            if text == before:
                return text
        return MASK if any(rule.search(text) for rule in rules) else text

    def value(self, value: Any) -> Any:
        """JSON values, redacted by the names of fields and by what texts look like."""
        if isinstance(value, str):
            return self.document(value)
        if isinstance(value, dict):
            return {
                self.text(str(key)): MASK
                if not isinstance(inner, bool | None) and self._is_secret(str(key))
                else self.value(inner)
                for key, inner in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.value(inner) for inner in value]
        return value

    def _is_secret(self, key: str) -> bool:
        name = _plain(key)
        return name in self._keys or (name.endswith(self._ends) and not name.endswith(NO_SECRETS))

    def document(self, text: str) -> str:
        """A text that may be JSON itself (arguments of a call, the reply of a service): then by names of its fields, too."""
        if len(text) < LARGE_CHARS:
            return self._document(text)
        if not any(text is known for known in tuple(self._known)):
            text = self._document(text)
            self._known.append(text)
        return text

    def _document(self, text: str) -> str:
        if text.lstrip()[:1] in ("{", "[", '"'):
            try:
                parsed = json.loads(text)
                if (redacted := self.value(parsed)) != parsed:
                    text = json.dumps(redacted, ensure_ascii=False)
            except RecursionError:
                return MASK
            except ValueError:
                pass
        return self.text(text)


def _masked(match: re.Match) -> str:
    start, end = match.span("secret")
    return match[0][: start - match.start()] + MASK + match[0][end - match.start() :]


def _plain(key: str) -> str:
    return key.lower().replace("-", "").replace("_", "")
