"""What every room needs and none owns: random keys, structure, validation, text, files, programs."""
