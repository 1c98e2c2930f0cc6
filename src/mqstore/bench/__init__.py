"""Measuring stores: each benchmark runs its cells in processes of their own, and keeps what they say as JSON.

``mqstore bench`` runs them; docs/layouts.md says what one of them found.
"""
