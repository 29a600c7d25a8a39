"""Reinforcement learning as functions: arrays in, arrays out, no models."""
