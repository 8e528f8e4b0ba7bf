"""What the filter removes from scripts and output, over a corpus of its own; ``pytest -s`` prints the counts."""

import itertools
import os
from pathlib import Path

import pytest
import redaction_twin
from redaction_corpus import HARMLESS, SECRETS, forms

from collector.agent import artifacts
from collector.agent.redaction import MARK, redact
from tests.measured import Measured


def leaked(text: str, secrets: list[str]) -> bool:
    kept, count = redact(text.encode())
    lines_stay = kept.count(b"\n") == text.encode().count(b"\n")
    return not (count and MARK in kept and lines_stay) or any(s.strip().encode() in kept for s in secrets if s.strip())


def test_the_corpus_is_as_large_as_it_is_stated_to_be() -> None:
    assert len(SECRETS) >= 60
    assert len(set(HARMLESS)) >= 200


def test_every_form_of_every_kind_is_caught(measured: Measured) -> None:
    missed = {kind: [text for text, secrets in forms(kind) if leaked(text, secrets)] for kind in SECRETS}
    total = sum(len(forms(kind)) for kind in SECRETS)
    caught = total - sum(map(len, missed.values()))
    measured(f"redaction: {len(SECRETS)} kinds, {caught} of {total} forms caught (recall {caught / total:.3f})")
    assert {kind: texts for kind, texts in missed.items() if texts} == {}


def test_every_form_is_caught_within_a_line_of_output() -> None:
    """With the timestamp and the rank that launchers put in front, and words after it."""
    missed = []
    for kind in SECRETS:
        for text, secrets in forms(kind):
            if (
                "\n" not in text
                and not kind.startswith((".pgpass", "htpasswd"))
                and leaked(f"2026-11-23T03:12:44 [rank3]: {text}", secrets)
            ):
                missed.append(text)
    assert missed == []


def test_what_an_investigator_needs_stays(measured: Measured) -> None:
    changed = [line for line in HARMLESS if redact(line.encode()) != (line.encode(), 0)]
    measured(f"redaction: {len(changed)} of {len(HARMLESS)} harmless lines changed")
    assert len(changed) < len(HARMLESS) / 100, changed


def test_harmless_lines_beside_each_other_stay() -> None:
    text = "\n".join(HARMLESS).encode()
    text = text.replace(b"Password:\n", b"").replace(b"Enter password:\n", b"")  # what follows these on a line is one
    kept, _ = redact(text)
    assert [pair for pair in zip(text.split(b"\n"), kept.split(b"\n"), strict=True) if pair[0] != pair[1]] == []


def test_a_second_pass_finds_nothing_more() -> None:
    for text, _ in itertools.chain.from_iterable(map(forms, SECRETS)):
        once, _ = redact(text.encode())
        assert redact(once) == (once, 0), text


def test_quotes_and_braces_stay_as_they_were() -> None:
    text = b'{"password":"x","user":"ada"}\nClient(token=abcdef)\n{"n": 1, "password": 12345678}'
    assert redact(text) == (
        b'{"password":"[redacted]","user":"ada"}\nClient(token=[redacted])\n{"n": 1, "password": [redacted]}', 3
    )  # fmt: skip


def test_a_key_cut_at_either_end_is_taken_out() -> None:
    end = b"MIIabc\nABCD==\n-----END RSA PRIVATE " + b"KEY-----\nstep 1\n"
    assert redact(b"step 0 went well\n" + end) == (b"step 0 went well\n" + b"[redacted]\n" * 3 + b"step 1\n", 1)
    begin = b"-----BEGIN RSA PRIVATE " + b"KEY-----\nMIIabc\n"
    assert redact(b"step 0\n" + begin) == (b"step 0\n" + b"[redacted]\n" * 2, 1)


def test_every_value_of_a_kubernetes_secret_is_taken_out() -> None:
    text = b"data:\n  pin: WnE4\n  other: WnE5\nkind: Secret\n---\ndata:\n  lr: high\n"
    assert (
        redact(text)[0] == b"data:\n[redacted]\n[redacted]\nkind: Secret\n---\ndata:\n  lr: high\n"
        or b"WnE" not in redact(text)[0]
    )


def test_a_key_that_ends_in_the_gap_leaves_the_gap_and_the_tail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "HEAD", 4096)
    monkeypatch.setattr(artifacts, "TAIL", 4096)
    begin = b"-----BEGIN RSA PRIVATE " + b"KEY-----\n"
    file = tmp_path / "out"
    file.write_bytes(b"first\n" + begin + b"MIIabcdef\n" * 1000 + b"last words of the job\n" * 300)
    owner = artifacts.Owner(os.getuid(), os.getgid(), (os.getgid(),), become=False)
    found = artifacts.fetch("stdout", str(file), owner)
    assert found.reason is None
    assert b"MIIabc" not in found.content
    assert b"bytes left out]" in found.content
    assert found.content.endswith(b"last words of the job\n")


def test_the_corpus_that_was_written_before_the_filter_was_read(measured: Measured) -> None:
    """The independent corpus.

    In its first run, 120 of its 130 forms were caught and 2 of its 152 harmless lines were changed.
    """
    missed = [kind for kind, text, secrets in redaction_twin.SECRETS if leaked(text, secrets)]
    changed = [line for line in redaction_twin.HARMLESS if redact(line.encode()) != (line.encode(), 0)]
    total, harmless = len(redaction_twin.SECRETS), len(set(redaction_twin.HARMLESS))
    measured(f"redaction, twin: {total - len(missed)} of {total} caught, {len(changed)} of {harmless} harmless changed")
    assert (missed, changed) == ([], [])
    assert (total, harmless) >= (40, 120)


@pytest.mark.parametrize(
    "text",
    [
        'os.environ["WANDB_API_KEY"] = "%s"',
        "os.environ['DB_PASS']='%s'",
        'os.environ.setdefault("HF_TOKEN", "%s")',
        "monkeypatch.setenv('SMTP_PASSWORD', '%s')",
        '#define DB_PASSWORD "%s"',
    ],
)
def test_a_name_in_brackets_or_as_an_argument_reveals_a_secret(text: str) -> None:
    """Found by a third corpus of 111 forms: these are how a program in Python sets a secret itself."""
    assert redact((text % "Xk3vQ9zLm2Rt8Yw1").encode()) == ((text % "[redacted]").encode(), 1)


@pytest.mark.parametrize(
    "text",
    [
        'counts["token"] = total_of_tokens',
        "embedded[token] = table.lookup",
        'words.setdefault("key", "a value")',
        "curl -H 'Authorization: Bearer ${HF_TOKEN}' https://h/",
        "usage: tool [--password PASSWORD] [--api-key <key>]",
        "az login --identity -p",
        "7z l data.7z",
        "unzip -q data.zip -d /scratch",
        "http -v GET https://h/api",
        "ALTER USER ann RENAME TO bob; SELECT 'word'",
    ],
)
def test_what_stands_for_a_secret_or_is_none_stays(text: str) -> None:
    assert redact(text.encode()) == (text.encode(), 0)
