"""A publisher in a process of its own: prints where it is bound, publishes a block a line of its input."""

import sys

import zmq

from protocol import BlockStored, EventBatch, LiveMessage, encode_batch, live_frames


def main() -> None:
    """Until the input ends."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    live = context.socket(zmq.PUB)
    port = live.bind_to_random_port("tcp://127.0.0.1")
    print(f"tcp://127.0.0.1:{port}", flush=True)  # noqa: T201
    for seq, _ in enumerate(sys.stdin):
        parent = None if seq == 0 else seq
        stored = BlockStored([seq + 1], parent, [4 * seq + i for i in range(4)], 4, "GPU")
        body = encode_batch(EventBatch(float(seq), [stored]))
        live.send_multipart(live_frames(LiveMessage(b"", seq, body)))
    context.destroy(linger=0)


if __name__ == "__main__":
    main()
