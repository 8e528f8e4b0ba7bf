"""Removes secrets from what jobs wrote: tokens, passwords, keys.

Three methods find them: forms that are secrets anywhere (``collector.agent.secret_forms``), values after a revealing
name (``DB_PASS=...``, ``"apiKey": "..."``), and multi-line keys with one end cut off. The filter knows forms, not
meanings. Every pattern repeats only up to a bound, so the cost is linear in the length of the text, whatever a job
writes. Lines stay lines: a secret of three lines becomes three marks.
"""

from __future__ import annotations

import re

from collector.agent.secret_forms import FORMS, is_basic, is_mixed

MARK = b"[redacted]"

# The name's last word and its possible suffix, the separator, and the value with its quotes.
_NAMED = re.compile(
    rb"""
    (?P<word>PASSWORDS?|PASSWRD|PASSWD|PASSPHRASE|PASSCODE|PASS|PSWD|PWD|[_-]PW|AUTHTOK|SECRET|TOKEN|JWT|CREDENTIALS?
        |SESSIONID|SESSID|SIGNATURE|SIG|AUTH|KEY)
    (?:[_-]?[0-9]{1,3}|[_-](?:base64|b64|data|default|dev|prod|raw|staging|test|value))?
    (?P<between>\\{0,3}(?:["']\]?)?[ \t]{0,20}(?::=|=>|[:=])[ \t]{0,20})
    (?:
        \\{1,3}["'](?P<escaped>[^"'\\\r\n\0]{1,2000})
        |[bfru]{0,2}"(?P<double>(?:[^"\\\r\n\0]|\\[^\r\n\0]){1,2000})
        |[bfru]{0,2}'(?P<single>(?:[^'\\\r\n\0]|\\[^\r\n\0]){1,2000})
        |(?P<plain>(?![{\[]["'])[^\s\0"',;&](?:[^\s\0"',;&]|["'](?=\w)|[,;&](?![\s"'}\])]|\Z|[A-Za-z_][\w.-]{0,40}[=:])){0,2000})
    )
    """,
    re.IGNORECASE | re.VERBOSE,
)
_NAME_BEFORE = re.compile(rb"[\w.-]{0,60}\Z")
_NO_VALUE = re.compile(
    rb"(?:none|null|nil|true|false|yes|no|ok|undefined|unset|empty|required|optional|str|string|int|bytes|bool|\*+|x{3,}"
    rb"|[\W_]+|[<\[].*|\{\{.*|%[(s].*|\$\{?[A-Za-z_]\w*\}?|\$\{[A-Za-z_]\w*:.*|\$\(.*|`.*|\[redacted\].*)\Z",
    re.IGNORECASE | re.DOTALL,
)  # fmt: skip
# Source code that says where the value comes from: args.token, os.environ[...], tokenizer.decode(ids)
_EXPRESSION = re.compile(
    rb"(?:args|self|config|cfg|conf|opts?|options|settings|os|env|kwargs|params)\.|[A-Za-z_][\w.]{0,80}\("
)
_NUMBER = re.compile(rb"[-+]?\d{1,7}(?:\.\d*)?(?:[/%]\d{0,7})?\W{0,3}\Z|0x[0-9a-f]+\W{0,3}\Z", re.IGNORECASE)
_PROSE = re.compile(rb"[A-Za-z]+\Z")
_GOES_ON = re.compile(rb"[ \t][A-Za-z\"']")
_PATH = re.compile(rb"(?:~|\.{0,2})/[\w.-]+(?:/[\w.-]*)*\Z")
_MODEL_TOKEN = re.compile(
    rb"(?:bos|eos|pad|unk|cls|sep|mask|image|video|audio|stop|special|next|last|first|new)_\Z", re.IGNORECASE
)
_KEY_OF = re.compile(
    rb"(?:api|app|application|access|secret|private|preshared|encryption|fernet|signing|master|auth|munge|licen[cs]e|storage"
    rb"|account|subscription|client|service|deploy|consumer|jwt|hmac|cipher|unseal|recovery|session|cookie)[_. -]?\Z",
    re.IGNORECASE,
)
_ENV_KEY = re.compile(
    rb"(?:\A|[^A-Z0-9_])(?!(?:GPG|PGP|PUBLIC|PUB|HOST|PRIMARY|FOREIGN|SORT|PARTITION|CACHE|ROW|GROUP)_)(?:[A-Z][A-Z0-9_]*_)?\Z"
)
_NO_PASS = re.compile(rb"(?:com|by|tres|sur|over|under|encom)\Z", re.IGNORECASE)
_IN_QUERY = re.compile(rb"(?:[?&]|x-amz-|sharedaccess)\Z", re.IGNORECASE)
_END_OF_KEY = re.compile(rb"-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_BASE64_LINE = re.compile(rb"[ \t]*[A-Za-z0-9+/=]{1,120}[ \t]*\r?\Z")


def redact(text: bytes) -> tuple[bytes, int]:
    """``text`` with a mark in place of each secret, and the number of secrets.

    >>> redact(b"export HF_TOKEN=abcdefgh")
    (b'export HF_TOKEN=[redacted]', 1)
    """
    text, total = _keys_without_beginning(text)
    for form in FORMS:
        text, count = _replaced(form.pattern, text, form.accepts)
        total += count
    text, count = _replaced(_NAMED, text, _is_named_secret)
    return text, total + count


def _replaced(pattern: re.Pattern[bytes], text: bytes, accepts) -> tuple[bytes, int]:  # type: ignore[no-untyped-def]
    """Marks the groups ``s...`` (or the value of ``_NAMED``) of each match. A refused match is searched again from
    inside."""
    parts: list[bytes] = []
    done = place = count = 0
    while (found := pattern.search(text, place)) is not None:
        start, end = next(
            (found.span(n) for n, v in found.groupdict().items() if v is not None and n in _MARKED), (-1, -1)
        )
        end = _without_closing(text, start, end)
        if end <= start or text.startswith(MARK, start) or not accepts(found):
            place = max(found.start() + 1, found.end("word") if "word" in pattern.groupindex else 0)
            continue
        parts += (text[done:start], _marks(text[start:end]))
        done = end
        place = max(end, found.start() + 1)
        count += 1
    return (b"".join((*parts, text[done:])), count) if count else (text, 0)


_MARKED = ("s", "escaped", "double", "single", "plain")


def _marks(secret: bytes) -> bytes:
    """One mark per non-empty line, so that the following lines keep their numbers."""
    return re.sub(rb"[^\r\n]*[^\s][^\r\n]*", MARK, secret)


def _without_closing(text: bytes, start: int, end: int) -> int:
    """The end without brackets opened before the secret: ``Client(token=abc)``."""
    while end > start + 1 and text[end - 1 : end] in (b")", b"]", b"}"):
        opening = {b")": b"(", b"]": b"[", b"}": b"{"}[text[end - 1 : end]]
        if text.find(opening, start, end) >= 0:
            break
        end -= 1
    return end


def _is_named_secret(found: re.Match[bytes]) -> bool:
    word = found["word"].upper()
    kind = next(n for n in ("escaped", "double", "single", "plain") if found[n] is not None)
    value = found[kind]
    text, start = found.string, found.start()
    before = text[max(0, start - 60) : start]
    name = _NAME_BEFORE.search(before)
    whole = ((name[0] if name else b"") + found["word"]).lower()
    if before.endswith(b"${" + (name[0] if name else b"")):  # "${DB_PASS:?not set}" asks for it
        return False
    if (
        value.lower() == whole
        or (kind != "single" and _NO_VALUE.match(value.strip().rstrip(b")]") or value))
        or not value.strip()
    ):
        return False
    # os.environ["HF_TOKEN"] = "..." is a secret, counts["token"] = total is none.
    if kind == "plain" and (_EXPRESSION.match(value) or b"]" in found["between"]):
        return False
    colon = b":" in found["between"]
    prose = kind == "plain" and colon and _PROSE.match(value) and _GOES_ON.match(text, found.end())
    return _RULES.get(word.strip(b"_-"), _is_password)(
        found["word"], before, value, kind != "plain", colon, bool(prose)
    )


def _is_password(word: bytes, before: bytes, value: bytes, quoted: bool, colon: bool, prose: bool) -> bool:
    # "passwd: password updated successfully" is output of the program passwd.
    return not (word.lower() == b"passwd" and prose)


def _is_pass(word: bytes, before: bytes, value: bytes, quoted: bool, colon: bool, prose: bool) -> bool:
    alone = not before or not re.match(rb"[\w.-]", before[-1:])
    if _NO_PASS.search(before) or _NUMBER.match(value) or prose:
        return False
    # "PASS: test_x" is output of test suites.
    return not (alone and colon and not quoted and not is_mixed(value))


def _is_pwd(word: bytes, before: bytes, value: bytes, quoted: bool, colon: bool, prose: bool) -> bool:
    return not value.startswith((b"/", b"~"))


def _is_token(word: bytes, before: bytes, value: bytes, quoted: bool, colon: bool, prose: bool) -> bool:
    if prose or _NUMBER.match(value) or (_MODEL_TOKEN.search(before) and len(value) < 24) or _PATH.match(value):
        return False
    return len(value) >= 6 or word.isupper()


def _is_key(word: bytes, before: bytes, value: bytes, quoted: bool, colon: bool, prose: bool) -> bool:
    if prose or _NUMBER.match(value):
        return False
    if _KEY_OF.search(before):
        return not (_PATH.match(value) and not before.lower().endswith(b"access_")) and (
            len(value) >= 6 or quoted or word.isupper()
        )
    if word.isupper() and not colon and _ENV_KEY.search(before):
        return not _PATH.match(value)
    return len(value) >= 20 and is_mixed(value) and value[-1:] == b"=" and not colon


def _is_auth(word: bytes, before: bytes, value: bytes, quoted: bool, colon: bool, prose: bool) -> bool:
    if word.isupper() and before.endswith(b"_"):
        return len(value) >= 6 and not _NUMBER.match(value)
    alone = before.endswith((b'"', b"'", b"_")) or not before.strip()
    return alone and (is_basic(value) or (len(value) >= 16 and is_mixed(value) and b"/" not in value[:1]))


def _is_credential(word: bytes, before: bytes, value: bytes, quoted: bool, colon: bool, prose: bool) -> bool:
    return len(value) >= 6 and bool(re.search(rb"[\d:]", value)) and not _PATH.match(value) and not _NUMBER.match(value)


def _is_session(word: bytes, before: bytes, value: bytes, quoted: bool, colon: bool, prose: bool) -> bool:
    return len(value) >= 8


def _is_signature(word: bytes, before: bytes, value: bytes, quoted: bool, colon: bool, prose: bool) -> bool:
    return bool(_IN_QUERY.search(before)) and len(value) >= 8


_RULES = {
    b"PASS": _is_pass, b"PWD": _is_pwd, b"TOKEN": _is_token, b"SECRET": _is_token, b"JWT": _is_token, b"KEY": _is_key,
    b"AUTH": _is_auth, b"CREDENTIAL": _is_credential, b"CREDENTIALS": _is_credential, b"SESSIONID": _is_session,
    b"SESSID": _is_session, b"SIGNATURE": _is_signature, b"SIG": _is_signature,
}  # fmt: skip


def _keys_without_beginning(text: bytes) -> tuple[bytes, int]:
    """A key whose first lines were cut off: base64 lines before an END without a BEGIN."""
    if b"-----END " not in text:
        return text, 0
    parts: list[bytes] = []
    done = count = 0
    for found in _END_OF_KEY.finditer(text):
        begin = text.rfind(b"-----BEGIN ", done, found.start())
        if begin >= 0 and b"PRIVATE KEY" in text[begin : begin + 60]:
            continue
        lines = text[done : found.start()].split(b"\n")
        first = len(lines) - 1
        while first > 0 and _BASE64_LINE.match(lines[first - 1]):
            first -= 1
        kept = b"\n".join((*lines[:first], b""))[: -1 if first == 0 else None]
        parts += (kept, _marks(b"\n".join(lines[first:]) + found[0]))
        done, count = found.end(), count + 1
    return (b"".join((*parts, text[done:])), count) if count else (text, 0)
