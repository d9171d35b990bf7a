"""Results about checkpoints as text, JSON and pages."""
