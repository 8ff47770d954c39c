"""The HTTP service: a data port that relays, a control port that explains, and what keeps both informed."""
