"""Scores with their intervals and signatures; they take answers as they come and keep little."""
