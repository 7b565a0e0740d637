"""What the commands of the command line do. `cli` imports each one only when it is asked for."""
