"""The salt of a tenant in a request's body: one field changes, and nobody leaves the tenant's space."""

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.tenant_salt import FIELD, TenantSalt, UnsaltableError

OURS = TenantSalt("of tenant a, at random")
THEIRS = TenantSalt("of tenant b, at random")


def salted(body: bytes, salt: TenantSalt = OURS, *, adds: bool = True) -> bytes:
    return salt.applied(body, json.loads(body), adds=adds)


def test_equal_salts_share_and_others_do_not() -> None:
    own = ["", "x", "y", "\x00", "\x01", OURS.of(None), "ü", "\ud800"]
    salts = [*map(OURS.of, own), *map(THEIRS.of, own), OURS.of("x" * 1_000)]
    assert len(set(salts)) == len(salts)
    assert salts == [*map(OURS.of, own), *map(THEIRS.of, own), OURS.of("x" * 1_000)]
    assert OURS.of(None) == OURS.of("") == OURS.of(7) == TenantSalt("of tenant a, at random").of([])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"{}", b'{"cache_salt":"NONE"}'),
        (b' \r\n{ "a": 1 }\n', b' \r\n{"cache_salt":"NONE", "a": 1 }\n'),
        (b'\xef\xbb\xbf{"a":NaN}', b'\xef\xbb\xbf{"cache_salt":"NONE","a":NaN}'),
        (b'{"m":{"cache_salt":"x"}}', b'{"cache_salt":"NONE","m":{"cache_salt":"x"}}'),
        (b'{"cache_salt":"x"}', b'{"cache_salt":"X"}'),
        (b'{"cache_salt":null , "a":1.0}', b'{"cache_salt":"NONE" , "a":1.0}'),
        (b'{"a":"\xc3\xbc", "cache_salt" : "x","b":2}', b'{"a":"\xc3\xbc", "cache_salt" : "X","b":2}'),
        (b'{"cache_s\\u0061lt":"\\u0078"}', b'{"cache_s\\u0061lt":"X"}'),
        (b'{"cache_salt":"y","cache_salt":"x"}', b'{"cache_salt":"Y","cache_salt":"X"}'),
        (b'{"cache_salt":["x", "y",3]}', b'{"cache_salt":["X","Y","NONE"]}'),
        (b'{"a":"\\ud800\xed\xa0\x80","cache_salt":{}}', b'{"a":"\\ud800\xed\xa0\x80","cache_salt":"NONE"}'),
        (b'\xef\xbb\xbf {"b":[{"cache_salt":1}],"cache_salt":[]}', b'\xef\xbb\xbf {"b":[{"cache_salt":1}],"cache_salt":[]}'),
    ],
)  # fmt: skip
def test_that_field_changes_and_no_other_byte(body: bytes, expected: bytes) -> None:
    for mark, own in ((b'"NONE"', None), (b'"X"', "x"), (b'"Y"', "y")):
        expected = expected.replace(mark, b'"%s"' % OURS.of(own).encode())
    fields = json.loads(body)
    assert OURS.applied(body, fields) == expected


def test_where_none_is_added_an_own_one_is_replaced() -> None:
    assert salted(b'{"a":1}', adds=False) == b'{"a":1}'
    assert salted(b'{"cache_salt":"x"}', adds=False) == salted(b'{"cache_salt":"x"}')


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"])
@pytest.mark.parametrize("text", ['{"a":1}', ' {"cache_salt":"x"}', "{}", "\n\n\n\n\n{}"])
def test_other_codings_are_refused(coding: str, text: str) -> None:
    with pytest.raises(UnsaltableError, match="UTF-8"):
        salted(text.encode(coding))


def test_what_is_nested_too_deeply_is_refused() -> None:
    deep = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b',"cache_salt":"x"}'
    with pytest.raises(UnsaltableError, match="deeply"):
        OURS.applied(deep, {FIELD: "x"})


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from([FIELD, "a", "messages"]) | st.text(), VALUES), st.booleans()
)
def test_any_object_is_itself_but_for_the_field(
    fields: Mapping[str, object], is_spaced: bool
) -> None:
    body = json.dumps(fields, indent=2 if is_spaced else None, ensure_ascii=is_spaced).encode()
    found = json.loads(salted(body))
    own = fields.get(FIELD)
    expected = [OURS.of(one) for one in own] if isinstance(own, list) else OURS.of(own)
    assert found == {**json.loads(body), FIELD: expected}
