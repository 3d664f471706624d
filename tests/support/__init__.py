"""What the end-to-end tests stand on: a strict client, a server started for real, and rendezvous between the two."""
