"""Flags of ``kvroute worker`` and the configuration they make."""

from pathlib import Path

import pytest
import typer

from kvroute.commands.worker import worker_config
from worker.config import SpeculativeAlgorithm, WorkerConfig
from worker.flavour import Flavour


def test_no_flags_are_the_defaults() -> None:
    flags = dict.fromkeys(WorkerConfig.model_fields)
    assert worker_config(flags) == WorkerConfig()


@pytest.mark.parametrize(
    ("flags", "config"),
    [
        ({"gpu_tokens": 128}, WorkerConfig(gpu_tokens=128)),
        ({"host_tokens": 0}, WorkerConfig(host_tokens=None)),
        ({"tokenizer": Path("/m")}, WorkerConfig(tokenizer=Path("/m"))),
        ({"no_events": True}, WorkerConfig(events_port=None)),
        ({"no_replay": True}, WorkerConfig(replay_port=None)),
        ({"mute_refill_events": True}, WorkerConfig(mute_refill_events=True)),
        ({"lora_paths": ["a=/x", "b=/y"]}, WorkerConfig(lora_paths=("a=/x", "b=/y"))),
        ({"lora_paths": []}, WorkerConfig()),
        (
            {"speculative_algorithm": SpeculativeAlgorithm.EAGLE3},
            WorkerConfig(speculative_algorithm=SpeculativeAlgorithm.EAGLE3),
        ),
        ({"log_level": "debug", "no_events": False}, WorkerConfig()),
        (
            {"engine": Flavour.VLLM, "byte_hashes": True, "offload_tokens": 4_096},
            WorkerConfig(engine=Flavour.VLLM, byte_hashes=True, offload_tokens=4_096),
        ),
    ],
)
def test_flags(flags: dict[str, object], config: WorkerConfig) -> None:
    assert worker_config(flags) == config


def test_a_bad_flag_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as raised:
        worker_config({"page_size": 0})
    assert raised.value.exit_code == 2
    assert "--page-size" in capsys.readouterr().err


def test_a_flag_of_another_engine_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as raised:
        worker_config({"engine": Flavour.VLLM, "write_policy": "write_back"})
    assert raised.value.exit_code == 2
    assert "--write-policy: vllm has no such thing" in capsys.readouterr().err
