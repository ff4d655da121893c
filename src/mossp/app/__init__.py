"""The command line: commands, tables and features, saved models, what is printed."""
