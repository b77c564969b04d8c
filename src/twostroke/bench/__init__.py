"""Measuring: any OpenAI-compatible endpoint under load (`load_test`)."""
