"""Frameworks: each module imports its own when it is used, and nothing before."""
