"""Offline batches: a file of requests answered by the same code as requests over HTTP."""
