"""Tokens put into chats for engines that take them: that field and no other byte."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from prompt import Api, PromptModel, bundled_model_dir, unpack_tokens
from protocol import EngineKind, WorkerId, WorkerSpec, pack_tokens
from router.counters import DataCounters
from router.prompt_reader import PromptReader
from router.shelf import PromptShelf
from router.token_ids_field import with_token_ids
from router.tokenizer_proof import Proof

MODEL = PromptModel.load(bundled_model_dir())
FIELD = b'"kv_transfer_params":{"prompt_token_ids":[7,8]},'
CHAT = b' {"model": "m", "messages": [{"role": "user", "content": "hi"}], "n":1.0}\n'


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"a":1}', b"{" + FIELD + b'"a":1}'),
        (b'\xef\xbb\xbf \r\n\t{ "a" : NaN }\n', b"\xef\xbb\xbf \r\n\t{" + FIELD + b' "a" : NaN }\n'),
        ('{"a":1}'.encode("utf-16"), None),
        ('{"a":1}'.encode("utf-16-le"), None),
        ('{"a":1}'.encode("utf-32-be"), None),
        (b"", None),
        (b"[]", None),
    ],
)  # fmt: skip
def test_where_the_field_goes(body: bytes, expected: bytes | None) -> None:
    assert with_token_ids(body, pack_tokens([7, 8])) == expected


class OneModel:
    def prompt_model(self, name: str | None) -> PromptModel:
        return MODEL


@pytest.mark.parametrize(
    ("api", "body", "is_sent"),
    [
        (Api.CHAT, CHAT, True),
        (Api.CHAT, CHAT.replace(b'"m"', b'"other"'), False),
        (Api.CHAT, CHAT.replace(b'"n":1.0', b'"kv_transfer_params": null'), False),
        (Api.CHAT, CHAT.replace(b'"hi"', b'["look at this", {"type": "image_url"}]'), False),
        (Api.CHAT, CHAT.replace(b'"n":1.0', b'"chat_template": "x"'), False),
        (Api.COMPLETIONS, b'{"model": "m", "prompt": "hi"}', False),
    ],
)
def test_whole_chats_alone_get_it(api: Api, body: bytes, *, is_sent: bool) -> None:
    with ThreadPoolExecutor(1) as executor:
        plain = PromptReader(OneModel(), executor, DataCounters())
        giving = PromptReader(
            OneModel(), executor, DataCounters(), takes_ids=lambda name: name == "m"
        )
        without, read = plain.read_now(api, body), giving.read_now(api, body)
    assert without.body is None
    assert read.tokens == without.tokens
    if not is_sent:
        assert read.body is None
        return
    assert read.body is not None
    assert read.tokens is not None
    sent = json.loads(read.body)
    assert sent.pop("kv_transfer_params") == {"prompt_token_ids": unpack_tokens(read.tokens)}
    assert sent == json.loads(body)
    assert read.body.endswith(body.lstrip()[1:])


SAME = Proof(takes_texts=True, takes_chats=True)


@pytest.mark.parametrize(
    ("engines", "proofs", "is_proved"),
    [
        ([EngineKind.VLLM], [SAME], True),
        ([EngineKind.VLLM, EngineKind.VLLM], [SAME, SAME], True),
        ([EngineKind.VLLM, EngineKind.VLLM], [SAME], False),
        ([EngineKind.VLLM, EngineKind.SGLANG], [SAME, SAME], False),
        ([EngineKind.UNKNOWN], [SAME], False),
        ([EngineKind.VLLM], [Proof(takes_texts=True)], False),
        ([EngineKind.VLLM], [Proof(takes_texts=True, takes_chats=True, difference="x")], False),
    ],
)
def test_engines_get_it_that_proved_to_make_the_same(
    engines: list[EngineKind], proofs: list[Proof], *, is_proved: bool
) -> None:
    shelf = PromptShelf({"m": bundled_model_dir()})
    specs = [
        WorkerSpec(WorkerId(f"w{n}"), f"http://w{n}", "m", engine=kind, aliases=("alias",))
        for n, kind in enumerate(engines)
    ]
    for spec in specs:
        shelf.put(spec, shelf.load(spec))
    shelf.keep(specs)
    assert not shelf.is_proved_vllm("m")
    for spec, proof in zip(specs, proofs, strict=False):
        shelf.prove(spec.worker, proof, 5.0)
    assert [shelf.is_proved_vllm(name) for name in ("m", "alias", None)] == [is_proved] * 3
    assert not shelf.is_proved_vllm("other")
