"""What the bridge calls experimental."""
