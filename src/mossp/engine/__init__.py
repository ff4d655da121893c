"""The only loop: compiled steps, their random draws, what is watched between chunks, checkpoints."""
