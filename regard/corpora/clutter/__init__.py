"""Digits anywhere among pieces of other digits, made of MNIST."""
