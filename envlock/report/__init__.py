"""Results as text for people and as documents for programs; the verdict is never decided here."""
