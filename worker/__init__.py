"""The simulated engine: tree core or block pool, scheduler, event publisher and HTTP surface of one worker."""
