"""The engine: requests of token ids in, events out. Owns scheduling and the record of what ran; no text, no sockets."""
