"""``python -m kvroute.child``: the command line in a child process, which ends when its parent is gone.

The parent holds the other end of stdin and writes nothing. However it ends, that end is closed by the
system; the child then sends itself SIGTERM and ends in order.
"""

import os
import signal
import threading

from kvroute.cli import main

_STDIN = 0


def _end_with_parent() -> None:
    while os.read(_STDIN, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, name="parent watch", daemon=True).start()
    main()
