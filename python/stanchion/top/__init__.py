"""`stanchion top`: the line, the seats and the kernel's queues of a running server, on a screen.

It reads `/status` of the admin listener, whose keys are fixed by crates/stanchion-acceptor/src/admin/.
"""
