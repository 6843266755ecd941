"""The `gyre` command. Nothing heavy is imported before the subcommand is known, and torch and the services never are."""
