"""The API's data: one pydantic model a body. Owns every field, its range and whether it is supported; runs nothing."""
