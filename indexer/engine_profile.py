"""Which tiers an engine can go on with, block by block along a prompt.

    any_tier     every block from whatever tier has it                       SGLang, and unknown engines
    gpu_first    leading blocks from GPU, then from lower tiers alone        vLLM

vLLM looks up its GPU cache first; its connectors extend that run from host memory or storage, and do not go
back: a block that is on GPU alone, behind one that is not, is computed again.

Source: SGLang 0.5.23 ``match_prefix``, vLLM 0.32.0 ``get_num_new_matched_tokens``.
"""

from enum import StrEnum

from protocol import EngineKind


class EngineProfile(StrEnum):
    """How an engine restores a prefix."""

    ANY_TIER = "any_tier"
    GPU_FIRST = "gpu_first"


def profile_of(engine: EngineKind) -> EngineProfile:
    """The profile of an engine; what is not known is taken to restore from any tier."""
    return EngineProfile.GPU_FIRST if engine is EngineKind.VLLM else EngineProfile.ANY_TIER
