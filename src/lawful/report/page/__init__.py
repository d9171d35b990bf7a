"""Self-contained pages and their parts: figures, films, matrices, the explorer, and what notebooks show."""
