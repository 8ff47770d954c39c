"""What a worker is, in a line for the log."""

from protocol import WorkerSpec


def summary(spec: WorkerSpec) -> str:
    """Engine, model, ranks and event sources."""
    replay = sum(source.replay_endpoint is not None for source in spec.sources)
    return (
        f"{spec.engine} {spec.version or '(version unknown)'} serving {spec.model},"
        f" ranks {spec.num_ranks}, block size {spec.block_size},"
        f" event sources {len(spec.sources)}, with replay {replay}"
    )
