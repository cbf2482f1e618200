"""What every package may use: errors, files, locks, digests, processes and text for terminals."""
