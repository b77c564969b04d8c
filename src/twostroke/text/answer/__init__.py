"""An answer's tokens to what they mean: reasoning, content and tool calls, as they arrive."""
