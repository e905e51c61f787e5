"""Kanji, whose components nobody named."""
