"""What every room needs and none owns: keys, structure, validation, text, files, programs."""
