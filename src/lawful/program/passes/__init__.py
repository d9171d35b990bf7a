"""Programs made of programs."""
