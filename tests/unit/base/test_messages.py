"""Addresses without passwords, and text without control codes."""

from __future__ import annotations

import logging

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.messages import CleanFormatter, printable, without_credentials


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("fetching https://me:p@ss@host/a", "fetching https://…@host/a"),
        ("proxy http://me@host:3128", "proxy http://…@host:3128"),
        ("s3://key:secret@bucket/a", "s3://…@bucket/a"),
        ("https://host/a?download=1&token=hf_abc#x", "https://host/a?download=1&token=…"),
        ("https://host/a?X-Amz-Signature=0f&page=2", "https://host/a?X-Amz-Signature=…&page=2"),
        ("url: /a?api_key=0f (Caused by 'x')", "url: /a?api_key=… (Caused by 'x')"),
    ],
)
def test_without_credentials_passwords_and_tokens_are_removed(text: str, clean: str) -> None:
    assert without_credentials(text) == clean
    assert clean in str(PipelineError("a", text, where=text, hint=text))
    secrets = ("ss@", "me", "secret", "hf_abc", "=0f")
    assert not any(secret in str(PipelineError("a", text, where=text, hint=text)) for secret in secrets)


@pytest.mark.parametrize(
    "text",
    [
        "https://host/@user, a@b.org",
        "hub:acme/pages@v1/a*.parquet",
        "https://host/a?id=1&page=2",
        "git@github.com:a/b",
        "a https://host/ and b@c",
    ],
)
def test_without_credentials_text_without_secrets_is_unchanged(text: str) -> None:
    assert without_credentials(text) == text


def test_pipeline_error_truncated_url_shows_no_password() -> None:
    address = f"https://me:{'p' * 3000}@host/a"
    assert "ppp" not in str(PipelineError("a", address, hint="b"))


def test_printable_escapes_control_codes_and_keeps_letters_and_lines() -> None:
    assert printable("a\x1b[2Jb\rc\u202ed") == r"a\x1b[2Jb\rc\u202ed"
    assert printable("Zoë 水\u3000车\n\tb") == "Zoë 水\u3000车\n\tb"


def test_clean_formatter_cleans_message_and_traceback() -> None:
    try:
        raise OSError("https://me:word@host \x1b[2J")
    except OSError as error:
        failure = (type(error), error, error.__traceback__)
    record = logging.LogRecord("a", logging.INFO, "a", 1, "at %s", ("https://me:word@host\x07",), failure)
    text = CleanFormatter().format(record)
    assert text.startswith("at https://…@host\\x07\nTraceback") and "word" not in text and "\x1b" not in text
