"""A client of apps/frameworks/fastapi.py, which says word by word what the test lets it say."""

import httpx


def hear_each_word_as_it_is_said(client: httpx.Client, buffering: str, words: int) -> None:
    """So many, each of which must come before the next one is said."""
    with client.stream("GET", "/words", params={"buffering": buffering}) as stream:
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        events = (line for line in stream.iter_lines() if line)
        assert next(events) == "data: ready"
        for number in range(words):
            client.get("/next", params={"word": f"word {number}"})
            assert next(events) == f"data: word {number}"
        client.get("/next", params={"word": "end"})
        assert list(events) == []
