"""Checkpoints of modules: Hugging Face folders and plain files, loaded into a module and written back as they were."""
