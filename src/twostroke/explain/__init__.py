"""A model's run, or its plan, drawn as one page: where each byte and each operation went. Counts nothing itself."""
