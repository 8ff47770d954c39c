"""Answers of workers, and what discovery makes of them."""

from protocol import WorkerId
from router.discovery import Discovered, WorkerAnswers, describe_worker

W = WorkerId("w")
URL = "http://10.1.2.3:8000"
MODELS = {
    "object": "list",
    "data": [
        {"id": "tiny", "root": "/models/tiny", "parent": None, "max_model_len": 4096},
        {"id": "tiny-alias", "root": "/models/tiny", "parent": None, "max_model_len": 4096},
        {"id": "my-lora", "root": "/loras/my", "parent": "tiny"},
    ],
}
SGLANG = {
    "model_path": "/models/big",
    "tokenizer_path": "/models/big",
    "served_model_name": "big",
    "page_size": 64,
    "dp_size": 2,
    "version": "0.5.23",
    "context_length": 32768,
    "kv_events": {
        "publisher": "zmq",
        "endpoint_host": "*",
        "endpoint_port_base": 5557,
        "replay_endpoint_port_base": 5577,
        "topic": "kv",
        "block_size": 128,
        "dp_size": 2,
    },
}


def describe(answers: WorkerAnswers, url: str = URL) -> Discovered:
    return describe_worker(W, url, answers)
