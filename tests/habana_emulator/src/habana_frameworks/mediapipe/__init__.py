"""The media pipe: decoding on the device."""
