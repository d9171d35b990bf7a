"""What every kind is read with: strict JSON, numbers, networks, programs, digests and findings."""
