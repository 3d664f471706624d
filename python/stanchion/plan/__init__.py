"""`stanchion plan`: how long requests would wait with other workers and threads.

log_lines.py and log_format.py read access logs as arrivals.
"""
