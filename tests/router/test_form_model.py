"""The model of a form, and nothing of what may be read in two ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.form_model import (
    MAX_MODEL_BYTES,
    MAX_PART_HEAD,
    MAX_PARTS,
    FormModel,
    form_model,
)

TYPE = b"multipart/form-data; boundary=b"


def part(name: str, content: bytes, more: str = "", head: str = "") -> bytes:
    disposition = f'Content-Disposition: form-data; name="{name}"{more}\r\n{head}\r\n'
    return b"--b\r\n" + disposition.encode() + content + b"\r\n"


END = b"--b--\r\n"
MODEL = part("model", b"whisper")
AUDIO = part(
    "file", b"\x00\r\n--\r\n--a\xff" * 50, '; filename="a.wav"', "Content-Type: audio/wav\r\n"
)

FORMS = {
    "first": (MODEL + AUDIO + END, "whisper"),
    "last": (AUDIO + MODEL + END, "whisper"),
    "between": (AUDIO + MODEL + AUDIO + END, "whisper"),
    "with a type": (part("model", b"m", head="Content-Type: text/plain; charset=utf-8\r\n") + END, "m"),
    "twice the same": (MODEL + AUDIO + MODEL + END, "whisper"),
    "none": (AUDIO + END, None),
    "empty": (part("model", b"") + END, ""),
    "no parts": (END, None),
    "another name": (part("Model", b"x") + part("models", b"y") + END, None),
    "within a file": (part("file", MODEL[5:], '; filename="x"') + END, None),
    "beyond ASCII": (part("model", "é".encode()) + END, "é"),
    "behind the end": (AUDIO + END + MODEL + END, None),
    "a bare name": (b"--b\r\ncontent-disposition:form-data;name=model\r\n\r\nm\r\n" + END, "m"),
    "a large file": (part("file", b"\r\n-" * (1 << 20), '; filename="x"') + MODEL + END, "whisper"),
}  # fmt: skip
ODD = {
    "two that differ": MODEL + AUDIO + part("model", b"other") + END,
    "a file of that name": part("model", b"m", '; filename="m"') + END,
    "two names": part("x", b"m", '; name="model"') + END,
    "an extended name": part("x", b"m", "; name*=utf-8''model") + END,
    "an escaped name": part("mo\\del", b"m") + END,
    "two dispositions": part("x", b"m", head='Content-Disposition: form-data; name="model"\r\n') + END,
    "no disposition": b"--b\r\nContent-Type: text/plain\r\n\r\nm\r\n" + END,
    "no header": b"--b\r\n\r\nm\r\n" + END,
    "no colon": part("model", b"m", head="Content-Type\r\n") + END,
    "folded": part("x", b"m", head=" ; name=model\r\n") + END,
    "bare line feeds": MODEL.replace(b"\r\n", b"\n") + END,
    "a line feed in a field": part("x", b"m", head='X: a\nContent-Disposition: x; name="model"\r\n') + END,
    "coded": part("model", b"bQ==", head="Content-Transfer-Encoding: base64\r\n") + END,
    "another charset": part("model", b"m", head="Content-Type: text/plain; charset=utf-16\r\n") + END,
    "a preamble": b"hello\r\n" + MODEL + END,
    "no end": MODEL,
    "cut": MODEL + AUDIO[:-20],
    "padding": b"--b \r\n" + MODEL[5:] + END,
    "not UTF-8": part("model", b"\xff") + END,
    "too long a name": part("model", b"m" * (MAX_MODEL_BYTES + 1)) + END,
    "too long a head": part("x", b"m", head="X: " + "y" * MAX_PART_HEAD + "\r\n") + END,
    "too many parts": part("x", b"") * MAX_PARTS + END,
    "nothing": b"",
}  # fmt: skip


@pytest.mark.parametrize(("body", "model"), FORMS.values(), ids=FORMS.keys())
def test_the_model_of_a_form(body: bytes, model: str | None) -> None:
    assert form_model(TYPE, body) == FormModel(model)


@pytest.mark.parametrize("body", ODD.values(), ids=ODD.keys())
def test_what_may_be_read_in_two_ways_is_not_read(body: bytes) -> None:
    assert form_model(TYPE, body) is None


@pytest.mark.parametrize(
    ("content_type", "is_read"),
    [
        (b'multipart/form-data; boundary="b"', True),
        (b"Multipart/Form-Data;x=y;BOUNDARY=b", True),
        (b"multipart/form-data; charset=UTF-8; boundary=b", True),
        (b'multipart/form-data; boundary=b; charset="utf-8"', True),
        (b"multipart/form-data; charset=utf-16; boundary=b", False),
        (b"multipart/form-data; boundary=b; Charset*=us-ascii'en'utf-7", False),
        (b"multipart/form-data; charset=utf-8; charset=utf-7; boundary=b", False),
        (b"multipart/form-data; charset=utf-8-sig; boundary=b", False),
        (b"multipart/form-data", False),
        (b"multipart/form-data; boundary=", False),
        (b"multipart/form-data; boundary=c", False),
        (b"multipart/form-data; boundary=b; boundary=c", False),
        (b"multipart/mixed; boundary=b", False),
        (b"application/json", False),
        (b"", False),
    ],
)
def test_types(content_type: bytes, is_read: bool) -> None:
    assert (form_model(content_type, MODEL + END) is not None) is is_read


@given(st.lists(st.tuples(st.sampled_from(["model", "file", "x"]), st.binary(max_size=30))))
def test_like_the_form_that_was_made(fields: list[tuple[str, bytes]]) -> None:
    body = b"".join(part(name, content) for name, content in fields) + END
    models = {content for name, content in fields if name == "model"}
    if any(b"--b" in content for _, content in fields):
        return
    found = form_model(TYPE, body)
    if len(models) > 1 or not all(_is_text(model) for model in models):
        assert found is None
    else:
        assert found == FormModel(next(iter(models)).decode() if models else None)


@given(st.binary(max_size=200))
def test_nothing_breaks_it(body: bytes) -> None:
    form_model(TYPE, body)
    form_model(TYPE, b"--b\r\n" + body)


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
