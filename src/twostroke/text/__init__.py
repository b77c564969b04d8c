"""Text and token ids: tokenizers, incremental decoding, chat templates. Knows no model and no engine."""
