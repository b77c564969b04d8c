"""The command line: one file a command. Owns words and options; what they do is done by the floors below."""
