"""The KV cache's book-keeping: which block belongs to whom. Integers only; the executor owns the arrays."""
