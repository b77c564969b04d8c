"""The native floor: the compiled core, and a Program lowered to it. The only importer of `_core`."""
