"""The command line as such: which commands there are, and what mistakes do."""

import re
import socket
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvroute.command_line import COMMANDS, build_app
from scoring import PolicyName
from scripts.reference.command_line import flags

RUNNER = CliRunner()


def invoke(*arguments: str) -> tuple[int, str]:
    """Exit code and everything that was printed, whitespace folded as boxes fold it."""
    width = {"COLUMNS": "80"}
    result = RUNNER.invoke(build_app(), list(arguments), prog_name="kvroute", env=width)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, " ".join(result.output.split())


def test_help_names_every_command() -> None:
    code, output = invoke("--help")
    assert code == 0
    assert all(f"│ {name} " in output for name in COMMANDS)


@pytest.mark.parametrize("command", [(name,) for name in COMMANDS] + [("scenario", "refill")])
def test_every_command_explains_itself(command: tuple[str, ...]) -> None:
    code, output = invoke(*command, "--help")
    assert code == 0
    assert "Usage: kvroute" in output


def test_help_shows_defaults_that_look_like_markup() -> None:
    _, output = invoke("serve", "--help")
    said = "".join(output.replace("│", " ").split())
    assert "[default:cost]" in said
    assert "[default:127.0.0.1]" in said


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS), ("scenario", "refill")])
def test_switches_are_shown_without_a_type(command: tuple[str, ...]) -> None:
    code, output = invoke(*command, "-h")
    assert code == 0
    assert "--help" in output
    assert "bool" not in output


@pytest.mark.parametrize("command", [*((name,) for name in COMMANDS), ("scenario", "refill")])
def test_names_and_words_are_whole_at_80_columns(command: tuple[str, ...]) -> None:
    _, output = invoke(*command, "--help")
    assert "…" not in output
    assert all(flag in output for flag in flags().get(" ".join(("kvroute", *command)), ()))
    for words in re.findall(r"<([^<>]*\|[^<>]*)>", output):
        raise AssertionError(f"a choice is shown as a type: {words}")


def test_choices_are_said_in_words() -> None:
    _, output = invoke("serve", "--help")
    said = "".join(output.replace("│", " ").split())
    assert f"{','.join(PolicyName)}.[default:cost]" in said
    assert "debug,info,warning,error.[default:info]" in said


def test_the_version_is_told() -> None:
    assert invoke("--version") == (0, f"kvroute {version('kvroute')}")


@pytest.mark.parametrize("command", [("worker",), ("serve", "--control-port", "0")])
def test_a_port_that_is_taken_is_named_once(
    command: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, output = invoke(*command, "--host", "127.0.0.1", "--port", str(port))
    assert code == 1
    assert f"kvroute: cannot listen on 127.0.0.1:{port}: Address already in use" in output
    assert "while attempting" not in output + capfd.readouterr().err


MISTAKES = [
    (("nothing",), "nothing"),
    (("worker", "--gpu-tokenz", "1"), "--gpu-tokenz"),
    (("worker", "--gpu-tokens", "many"), "--gpu-tokens"),
    (("worker", "--gpu-tokens", "0"), "--gpu-tokens"),
    (("worker", "--storage", "tape"), "--storage"),
    (("worker", "--storage", "tape"), "(given: 'tape')"),
    (
        ("worker", "--port", "0", "--storage", "dir:/proc/nope"),
        "--storage: dir:/proc/nope: no such",
    ),
    (
        ("worker", "--port", "0", "--storage", "dir:/dev/null"),
        "--storage: dir:/dev/null: not a dir",
    ),
    (("worker", "--port", "70000"), "--port: at most 65535 (given: 70000)"),
    (("worker", "--events-port", "-1"), "--events-port: at least 0 (given: -1)"),
    (("worker", "--events-port", "9", "--replay-port", "9"), "--replay-port: within the ports"),
    (("worker", "--port", "90", "--events-port", "90"), "--events-port: within its ports is 90"),
    (("worker", "--port", "91", "--replay-port", "90", "--dp-size", "2"), "--replay-port: within"),
    (("worker", "--speed", "0"), "--speed"),
    (("worker", "--write-policy", "never"), "--write-policy"),
    (("worker", "--host-tokens", "0", "--storage", "memory"), "storage"),
    (("worker", "--port", "0", "--tokenizer", "/nowhere"), "--tokenizer"),
    (("serve", "--policy", "best"), "--policy"),
    (("serve", "--port", "70000"), "port: at most 65535 (given: 70000)"),
    (("serve", "--port", "-1"), "port: at least 0 (given: -1)"),
    (("serve", "--port", "90", "--control-port", "90"), "control_port: the data port is 90, too"),
    (("serve", "--port", "8081"), "control_port: the data port is 8081, too"),
    (("serve", "--config", "/"), "/: cannot be read: is a directory"),
    (("serve", "--config", "/dev/null", "--port", "x"), "--port"),
    (("serve", "--tokenizer", "m"), "--tokenizer"),
    (("serve", "--worker", "ftp://x"), "workers.0"),
    (("serve", "--worker", "http://x", "--worker", "http://x/"), "workers.1"),
    (("serve", "--control-host", "0.0.0.0"), "control_token"),
    (("serve", "--config", "/nowhere.yaml"), "/nowhere.yaml"),
    (("demo", "--workers", "0"), "--workers"),
    (("demo", "--policy", "best"), "--policy"),
    (("demo", "--requests", "3"), "--requests: at least 16"),
    (("demo", "--duration-s", "0"), "--duration-s"),
    (("demo", "--think-s", "-1"), "--think-s"),
    (("scenario", "refill", "--workers", "1"), "--workers: "),
    (("scenario", "refill", "--prefixes", "100"), "--prefixes: "),
    (("scenario", "refill", "--prefixes", "0"), "--prefixes: "),
    (("scenario", "refill", "--prefix-blocks", "0"), "--prefix-blocks: "),
    (("scenario", "refill", "--host-prefixes", "80"), "--host-prefixes: "),
    (("scenario", "refill", "--gpu-prefixes", "16"), "--gpu-prefixes: "),
    (("scenario", "refill", "--page-size", "16"), "--page-size: "),
    (("scenario", "refill", "--decisions", "0"), "--decisions: "),
    (("scenario", "refill", "--engine-speed", "0"), "--engine-speed: "),
    (("replay", "/nowhere.jsonl", "--url", "http://127.0.0.1:1"), "TRACE"),
    (("replay", "/nowhere.jsonl"), "--url"),
    (("replay", "x", "--url", "http://127.0.0.1:1", "--speed", "0"), "--speed"),
    (("replay", "x", "--url", "http://127.0.0.1:1", "--speed", "nan"), "--speed"),
    (("replay", "x", "--url", "http://127.0.0.1:1", "--speed", "inf"), "--speed"),
    (("replay", "x", "--url", "http://127.0.0.1:1", "--timeout-s", "nan"), "--timeout-s"),
    (("replay", "x", "--url", "http://127.0.0.1:1", "--form", "smoke"), "--form"),
    *(
        (("replay", "x", "--url", url), f"--url: {url!r}: ")
        for url in ("ftp://x", "http://[", "http://a:99999", "", "http://u:p@a", "http://a b")
    ),
    (("replay", "/", "--url", "http://127.0.0.1:1"), "TRACE: /: is a directory"),
    (("replay", "/dev/null", "--url", "x", "--block-size", "0"), "--block-size: at least 1"),
    (("explain", "x", "--control-url", "ftp://x"), "--control-url: 'ftp://x': not an http URL"),
    (("explain", "x", "--control-url", "http://["), "--control-url: 'http://[': "),
    (("explain", "--body", "/"), "--body: /: is a directory"),
    (("demo", "--seed", "x"), "--seed: a whole number (given: 'x')"),
    (("demo", "--workers", "999999"), "--workers: at most 64 (given: '999999')"),
    (("scenario", "refill", "--workers", "65"), "--workers: at most 64 (given: '65')"),
    (("tap", "foo"), "ENDPOINT"),
    (("tap", "tcp://127.0.0.1:9", "--for", "0"), "--for"),
    (("tap", "tcp://127.0.0.1:9", "--record", "/nowhere/x"), "--record"),
    (("tap", "tcp://127.0.0.1:9", "--json", "/proc/x"), "--json: /proc/x: no such file"),
    (("explain",), "PROMPT"),
    (("explain", "x", "--body", "y"), "PROMPT"),
    (("explain", "--body", "/nowhere.json"), "--body"),
    (("explain", "x", "--json", "/nowhere/out.json"), "--json: /nowhere/out.json: no such file"),
    (("explain", "x", "--json", "/"), "--json: /: is a directory"),
    (("doctor",), "URL"),
    (("doctor", "ftp://x"), "URL: 'ftp://x': not an http URL"),
    (("doctor", "x", "--tokenizer", "m"), "--tokenizer"),
    (("doctor", "x", "--tokenizer", "m=/nowhere"), "--tokenizer"),
    (("doctor", "x", "--timeout-s", "0"), "--timeout-s"),
    (("doctor", "x", "--listen", "nan"), "--listen"),
    (("demo", "--json", "/nowhere/out.json"), "--json"),
    (("scenario", "refill", "--json", "/"), "--json"),
    (("replay", "x", "--url", "http://127.0.0.1:1", "--json", "/nowhere/out.json"), "--json"),
]


@pytest.mark.parametrize(("arguments", "field"), MISTAKES)
def test_a_mistake_ends_with_2_and_names_the_field(arguments: tuple[str, ...], field: str) -> None:
    code, output = invoke(*arguments)
    assert code == 2, output
    assert field in output
    assert "kvroute: " in output
    assert not any(
        words in output for words in ("Traceback", "Input should", "Value error", "Errno")
    )


def test_an_unknown_field_of_the_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "kvroute.yaml"
    path.write_text("limits:\n  max_bodies: 3\n")
    code, output = invoke("serve", "--config", str(path))
    assert code == 2
    assert "limits.max_bodies" in output
