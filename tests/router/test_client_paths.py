"""Which paths clients may use with a key, and which need none."""

import pytest

from router.client_paths import is_for_clients, needs_no_key


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions", "/v1/chat/completions/", "/v1/completions", "/v1/messages",
        "/v1/messages/count_tokens", "/v1/responses/resp_1/cancel", "/v1/models", "/v1/models/org/name",
        "/v1/embeddings", "/v1/audio/transcriptions", "/generate", "/tokenize", "/detokenize", "/rerank",
    ],
)  # fmt: skip
def test_requests_are_for_clients(path: str) -> None:
    assert is_for_clients(path)


@pytest.mark.parametrize(
    "path",
    [
        "/", "", "*", "/flush_cache", "/update_weights_from_disk", "/start_profile", "/metrics", "/server_info",
        "/v1/load_lora_adapter", "/v1/load_lora_adapter/", "/v1/unload_lora_adapter", "/load_lora_adapter",
        "/v1/../flush_cache", "/v1/./../flush_cache", "/v1//load_lora_adapter", "/v1/x/..", "/v1/..\\flush_cache",
        "//v1/chat/completions", "/V1/chat/completions", "/generate/x", "/invocations", "/sleep", "/v1", "/openapi.json",
    ],
)  # fmt: skip
def test_what_administers_or_is_not_known_is_not(path: str) -> None:
    assert not is_for_clients(path)


ASKS = [(b"origin", b"https://a"), (b"access-control-request-method", b"POST")]


@pytest.mark.parametrize(
    ("method", "path", "is_free"),
    [
        ("GET", "/health", True),
        ("HEAD", "/ready/", True),
        ("POST", "/health", True),
        ("OPTIONS", "/v1/chat/completions", True),
        ("POST", "/v1/chat/completions", False),
        ("GET", "/v1/models", False),
        ("GET", "/health/x", False),
    ],
)
def test_probes_and_preflights_need_no_key(method: str, path: str, is_free: bool) -> None:
    assert needs_no_key(method, path, ASKS) is is_free


@pytest.mark.parametrize("headers", [[], ASKS[:1], ASKS[1:]])
def test_other_questions_about_options_need_one(headers: list[tuple[bytes, bytes]]) -> None:
    assert not needs_no_key("OPTIONS", "/health", headers)
