"""Model families: from a file's metadata to a config, from a config to a Program, and the check of its weights."""
