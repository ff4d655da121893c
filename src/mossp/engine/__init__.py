"""The only loop: compiled steps, random draws, what is watched between chunks, checkpoints."""
