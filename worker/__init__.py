"""The simulated engine: tree core, scheduler, event publisher and HTTP surface of one worker."""
