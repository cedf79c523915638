"""Files on the local disk: paths that stay below one folder, modes, trust, YAML as plain data."""
