"""The benchmark: stanchion beside other WSGI servers, the same cases in alternating rounds, in one run."""
