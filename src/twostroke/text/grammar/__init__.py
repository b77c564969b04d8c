"""What an answer may look like: schemas, expressions and grammars, and the tokens they leave at each step."""
