"""The JSON of every subcommand, key by key, and the JSON Schemas made from that table."""
