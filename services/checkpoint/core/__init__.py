"""What the checkpoint service decides, without doing it: saves, commits, restores, retention, orphans."""
