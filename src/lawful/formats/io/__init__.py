"""The one way in and the one way out: bounded reads of regular files, writes that appear whole or not at all."""
