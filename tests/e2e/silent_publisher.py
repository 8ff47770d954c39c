"""A publisher in a process of its own: a line of its input publishes a block.

It prints where it is bound, and ``subscribed`` for each subscription that has come.
"""

import os
import sys

import zmq

from protocol import BlockStored, EventBatch, LiveMessage, encode_batch, live_frames


def main() -> None:
    """Until the input ends."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    live = context.socket(zmq.XPUB)
    live.set(zmq.XPUB_VERBOSE, 1)
    port = live.bind_to_random_port("tcp://127.0.0.1")
    print(f"tcp://127.0.0.1:{port}", flush=True)  # noqa: T201
    poller = zmq.Poller()
    for one in (live, sys.stdin.fileno()):
        poller.register(one, zmq.POLLIN)
    seq = 0
    while True:
        ready = dict(poller.poll())
        if live in ready and live.recv().startswith(b"\x01"):
            print("subscribed", flush=True)  # noqa: T201
        if sys.stdin.fileno() in ready:
            lines = os.read(sys.stdin.fileno(), 4096)
            if not lines:
                break
            for _ in range(lines.count(b"\n")):
                publish(live, seq)
                seq += 1
    context.destroy(linger=0)


def publish(live: zmq.Socket[bytes], seq: int) -> None:
    """Announce one block."""
    parent = None if seq == 0 else seq
    stored = BlockStored([seq + 1], parent, [4 * seq + i for i in range(4)], 4, "GPU")
    body = encode_batch(EventBatch(float(seq), [stored]))
    live.send_multipart(live_frames(LiveMessage(b"", seq, body)))


if __name__ == "__main__":
    main()
