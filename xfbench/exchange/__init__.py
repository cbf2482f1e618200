"""What leaves and enters a results folder: archives, submissions, and other tools' files."""
