"""The model that comes with the package: a small tokenizer and chat template for the simulated engine."""

from pathlib import Path

BUNDLED_MODEL_NAME = "kvroute-sim"


def bundled_model_dir() -> Path:
    """Its directory, with ``tokenizer.json`` and ``tokenizer_config.json``."""
    return Path(__file__).parent / "assets" / BUNDLED_MODEL_NAME
