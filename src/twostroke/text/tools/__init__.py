"""Tool calls in the format of each model's template: reading them, and holding an answer to them."""
