"""Twostroke beside other engines: set up outside the repository, run in turn on the same model, prompts and threads."""
