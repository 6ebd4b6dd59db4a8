"""Empty: see torchvision."""
