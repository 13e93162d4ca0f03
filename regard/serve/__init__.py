"""Runs over HTTP: OpenAI's routes, any task, what attends to what, and the page."""
