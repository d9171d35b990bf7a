"""Writers: a `Program` becomes a module or a file again."""
