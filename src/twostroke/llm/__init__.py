"""The Python API: a model that takes text and gives text. Owns loading, and where text meets the engine's token ids."""
