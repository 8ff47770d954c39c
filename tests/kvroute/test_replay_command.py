"""``kvroute replay`` against a server in this process."""

import asyncio
import json
from pathlib import Path

import pytest
from aiohttp import web

from tests.kvroute.command import kvroute
from tests.loadgen.serving import serving

LINE = {"timestamp": 0, "input_length": 600, "output_length": 7, "hash_ids": [1, 2]}


def trace(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(lines or (json.dumps(LINE),)))
    return str(path)


class Server:
    """Answers completions with usage, and remembers what it was sent."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.bodies: list[dict[str, object]] = []
        self.keys: list[str | None] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.keys.append(request.headers.get("Authorization"))
        if request.path == "/v1/models":
            return web.json_response({"data": [{"id": "served"}]})
        self.bodies.append(await request.json())
        usage = {"prompt_tokens": 600, "completion_tokens": 7}
        details = {"prompt_tokens_details": {"cached_tokens": 300}}
        body = {"choices": [{"text": "x"}], "usage": usage | details}
        return web.json_response(body, status=self.status)


async def test_json_on_stdout_and_the_table_beside_it(tmp_path: Path) -> None:
    server = Server()
    async with serving(server.answer) as url:
        ended = await kvroute("replay", trace(tmp_path), "--url", url + "/", "--json", "-")
    assert ended.code == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert (result["requests"], result["errors"]) == (1, 0)
    assert result["cached_token_share"] == 0.5
    assert result["skipped_lines"] == {}
    assert "cached tokens" in ended.stderr
    (body,) = server.bodies
    assert body["model"] == "served"
    assert body["max_tokens"] == 7
    assert isinstance(body["prompt"], list)
    assert len(body["prompt"]) == 600


async def test_json_to_a_file_and_bad_lines_counted(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    bad = trace(tmp_path, json.dumps(LINE), "{", json.dumps(LINE | {"hash_ids": [1]}))
    async with serving(Server().answer) as url:
        ended = await kvroute(
            "replay", bad, "--url", url, "--on-bad-line", "skip", "--json", str(result),
            "--form", "chat", "--max-output-tokens", "2",
        )  # fmt: skip
    assert ended.code == 0, ended.stderr
    assert json.loads(result.read_text())["skipped_lines"] == {"not_json": 1, "block_count": 1}
    assert "cached tokens" in ended.stdout


@pytest.mark.parametrize("lines", [("",), ("{",)])
async def test_a_trace_without_requests_is_an_error(tmp_path: Path, lines: tuple[str, ...]) -> None:
    skip = ("--on-bad-line", "skip")
    ended = await kvroute("replay", trace(tmp_path, *lines), "--url", "http://127.0.0.1:1", *skip)
    assert ended.code == 1
    assert "there is no request in it" in ended.stderr


async def test_a_time_beyond_a_year_is_refused(tmp_path: Path) -> None:
    late = trace(tmp_path, json.dumps(LINE | {"timestamp": 1e300}))
    ended = await kvroute("replay", late, "--url", "http://127.0.0.1:1")
    assert ended.code == 2
    assert "line 1: timestamp" in ended.stderr


async def test_headers_go_with_every_request(tmp_path: Path) -> None:
    server = Server()
    key = ("--header", "Authorization: Bearer a:b", "--header", "X-Team:x")
    async with serving(server.answer) as url:
        ended = await kvroute("replay", trace(tmp_path), "--url", url, *key)
    assert ended.code == 0, ended.stderr
    assert server.keys == ["Bearer a:b"] * 2


@pytest.mark.parametrize(
    "header", ["secret", ":secret", "a b: secret", "a: secret\r\nb: c", "a: sécret"]
)
async def test_what_is_no_header_is_refused_and_not_repeated(tmp_path: Path, header: str) -> None:
    ended = await kvroute(
        "replay", trace(tmp_path), "--url", "http://127.0.0.1:1", "--header", header
    )
    assert ended.code == 2
    assert "--header" in ended.stderr
    assert "cret" not in ended.stderr


async def test_failed_requests_end_with_1(tmp_path: Path) -> None:
    async with serving(Server(status=500).answer) as url:
        ended = await kvroute("replay", trace(tmp_path), "--url", url, "--json", "-")
    assert ended.code == 1
    assert json.loads(ended.stdout)["errors_by_kind"] == {"server_error": 1}
    assert "1 of 1 requests failed" in ended.stderr
    assert "\n  server_error: " in ended.stderr
    assert "{'" not in ended.stderr


@pytest.mark.parametrize(
    ("extra", "code", "words"),
    [
        ((), 1, "cannot connect to"),
        (("--model", "m", "--block-size", "2"), 2, "trace.jsonl: line 1"),
    ],
)
async def test_what_cannot_start_says_why(
    tmp_path: Path, extra: tuple[str, ...], code: int, words: str
) -> None:
    ended = await kvroute("replay", trace(tmp_path), "--url", "http://127.0.0.1:1", *extra)
    assert ended.code == code
    assert words in ended.stderr


async def test_a_server_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    for more in ((), ("--model", "m")):
        ended = await kvroute("replay", trace(tmp_path), "--url", "http://127.0.0.1:1", *more)
        assert ended.code == 1
        assert ended.stderr == (
            "kvroute: cannot connect to http://127.0.0.1:1: connection refused\n"
        )


async def test_a_server_of_another_kind_is_said_to_be_so(tmp_path: Path) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)  # closed with something unread it would be a reset
        writer.write(b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\r\n")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ended = await kvroute("replay", trace(tmp_path), "--url", url)
    assert ended.code == 1
    assert f"{url} does not speak HTTP" in ended.stderr


async def test_a_server_without_models_is_asked_about(tmp_path: Path) -> None:
    async def lost(_: web.Request) -> web.StreamResponse:
        return web.Response(status=404)

    async with serving(lost) as url:
        ended = await kvroute("replay", trace(tmp_path), "--url", url)
    assert ended.code == 1
    assert f"{url}/v1/models answers 404: is this the server's base URL?" in ended.stderr
