"""The commands, one a module; each has ``register(app)``."""
