"""Jobs made of the rooms: claims, reproduction, audit, sweeps."""
