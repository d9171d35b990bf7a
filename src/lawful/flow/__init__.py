"""How training moves: gradient flow, monitors, truncation."""
