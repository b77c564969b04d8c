"""The Program: one description of a model that is run, costed, planned and drawn."""
