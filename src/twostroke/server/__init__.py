"""The HTTP server: requests in the OpenAI API's form to the engine, answers back. Owns no model and no scheduling."""
