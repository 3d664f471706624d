"""For programs that make a server themselves: what `gunicorn.app` has, under the same names."""
