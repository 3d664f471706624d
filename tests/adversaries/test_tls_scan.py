"""Scanners of TLS look for versions, suites and groups one at a time, and for the faults that have names.

A scanner sends a hello and looks at the first answer. The server takes TLS 1.2 and 1.3, suites of AEAD with ECDHE, and
four groups. With each other it refuses the client, by the alert that the RFC has for it."""

import pytest

from support.target import Target
from support.tls_raw import (
    ALERT,
    ALPN,
    EARLY,
    FALLBACK,
    FORMATS,
    GROUPS,
    HANDSHAKE,
    HEARTBEAT,
    HEARTBEATS,
    HYBRID,
    MAC_LATER,
    MASTER_SECRET,
    P256,
    P384,
    RENEGOTIATION,
    SECURE,
    SERVER_NAME,
    SHARES,
    SIGNATURES,
    SIZE_LIMIT,
    STATUS,
    SUITES_1_2,
    SUITES_1_3,
    TICKET,
    VERSIONS,
    X25519,
    Hello,
    first_words,
    modern,
    record,
    share,
    u16s,
    vector,
)

pytestmark = pytest.mark.own("each promise is about how stanchion configures TLS")

OLD = Hello()
DOWNGRADED = b"DOWNGRD\x01"
"""How a server of TLS 1.3 ends its random where it speaks 1.2 (RFC 8446 section 4.1.3)."""


@pytest.fixture(scope="module", params=["ecdsa", "rsa"])
def kind_of_key(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def of_ssl_2(*versions: int) -> bytes:
    """A hello of SSL 2.0, of three of its suites (RFC 6101 appendix E.1)."""
    suites = b"\x01\x00\x80\x07\x00\xc0\x05\x00\x80"
    body = b"\1" + u16s(*versions) + u16s(len(suites), 0, 16) + suites + bytes(16)
    return u16s(0x8000 | len(body)) + body


VERSIONS_OF_HELLOS: dict[str, tuple[Hello | bytes, str]] = {
    # RFC 8996: 1.0 and 1.1 are not to be spoken; RFC 7568: nor SSL 3.0; RFC 6176: nor SSL 2.0.
    "SSL 2.0": (of_ssl_2(0x0002), "decode_error"),
    "SSL 2.0 for 1.2": (of_ssl_2(0x0303), "decode_error"),
    "SSL 3.0": (OLD.but(version=0x0300), "protocol_version"),
    "1.0": (OLD.but(version=0x0301), "protocol_version"),
    "1.1": (OLD.but(version=0x0302), "protocol_version"),
    "1.2": (OLD, "1.2"),
    # RFC 8446 section 4.2.1: without the extension it is 1.2 that is spoken, whatever a later version says.
    "1.3 without the extension": (OLD.but(version=0x0304), "1.2"),
    "4.0 without the extension": (OLD.but(version=0x0400), "1.2"),
    "1.3": (modern(), "1.3"),
    # RFC 8446 appendix D.5 has this refused. rustls looks at the extension alone, and never speaks SSL 3.0.
    "1.3 in a hello of SSL 3.0": (modern().but(version=0x0300), "1.3"),
    "1.2 by the extension": (OLD | {VERSIONS: b"\2\3\3"}, "1.2"),
    "1.1 by the extension": (OLD | {VERSIONS: b"\2\3\2"}, "protocol_version"),
    "1.0, 1.1 and 1.3": (modern() | {VERSIONS: b"\6\3\1\3\2\3\4"}, "1.3"),
    "a draft of 1.3": (modern() | {VERSIONS: b"\2\x7f\x1c"}, "protocol_version"),
    "one that is none": (modern() | {VERSIONS: b"\2\x0a\x0a"}, "protocol_version"),
    "one that is none and 1.3": (modern() | {VERSIONS: b"\4\x0a\x0a\3\4"}, "1.3"),
}


@pytest.mark.parametrize("name", VERSIONS_OF_HELLOS)
def test_versions(target: Target, kind_of_key: str, name: str) -> None:
    hello, expected = VERSIONS_OF_HELLOS[name]
    assert first_words(target, hello).word == expected


def suites_of(kind_of_key: str) -> list[int]:
    return [*SUITES_1_3, *(SUITES_1_2[:3] if kind_of_key == "ecdsa" else SUITES_1_2[3:])]


FORBIDDEN = {
    "NULL": (0x0000, 0x0001, 0x0002, 0x003B, 0xC001, 0xC006, 0xC010),
    "export": (0x0003, 0x0006, 0x0008, 0x000B, 0x000E, 0x0014, 0x0019, 0x0062, 0x0064),
    "RC4": (0x0004, 0x0005, 0x0018, 0xC007, 0xC011),
    "DES and 3DES": (0x0009, 0x000A, 0x0016, 0x001B, 0xC008, 0xC012),
    "static RSA": (0x002F, 0x0035, 0x003C, 0x003D, 0x009C, 0x009D, 0xC09C, 0xC0A0),
    "DHE": (0x0033, 0x0039, 0x0067, 0x006B, 0x009E, 0x009F, 0xCCAA),
    "static ECDH": (0xC004, 0xC00E, 0xC02D, 0xC031),
    "anonymous": (0x0034, 0x003A, 0x00A6, 0x00A7, 0xC018, 0xC019),
    "CBC": (0xC009, 0xC00A, 0xC013, 0xC014, 0xC023, 0xC024, 0xC027, 0xC028),
    "PSK and SRP": (0x008C, 0x00A8, 0xC01D, 0xC035, 0xCCAB),
    "others": (0x0007, 0x0041, 0x0096, 0xC03C, 0xC077, 0xC0AC, 0x1304, 0x1305),
}


@pytest.mark.parametrize("family", FORBIDDEN)
def test_suites_that_are_not_safe(target: Target, family: str) -> None:
    """ROBOT, FREAK, Logjam, SWEET32, Lucky 13, POODLE and DROWN want one of these."""
    for suite in FORBIDDEN[family]:
        for hello in (OLD.but(suites=(suite,)), modern(suite)):
            assert first_words(target, hello).word == "handshake_failure", f"{suite:04x}"


def test_each_suite_that_is_safe(target: Target, kind_of_key: str) -> None:
    every = [*range(0x0100), *range(0x1300, 0x1310), *range(0xC000, 0xC100), *range(0xCCA0, 0xCCB0)]
    taken = []
    for suite in every:
        for hello, version in ((OLD.but(suites=(suite,)), "1.2"), (modern(suite), "1.3")):
            answer = first_words(target, hello)
            if answer.word == version:
                assert answer.suite == suite
                taken.append(suite)
            else:
                assert answer.word == "handshake_failure", f"{suite:04x}"
    assert taken == sorted(suites_of(kind_of_key))


def test_the_server_chooses_among_suites(target: Target, kind_of_key: str) -> None:
    """The client puts a forbidden one first."""
    answer = first_words(target, OLD.but(suites=(0x000A, 0xC013, 0x002F, *SUITES_1_2)))
    assert answer.suite in suites_of(kind_of_key)
    answer = first_words(target, modern(0x1304, *SUITES_1_3))
    assert answer.suite in SUITES_1_3


GROUPS_KNOWN = {X25519, P256, P384, HYBRID}


def test_groups(target: Target) -> None:
    """Each that IANA has, and GREASE: in 1.3 the server asks for a share of one that it knows, in 1.2 it makes one."""
    every = [*range(1, 42), *range(256, 261), *range(0x11EB, 0x11EE), 0x6399, 0xFE00, 0xFF01, 0x0A0A]
    for group in every:
        only = {GROUPS: vector(u16s(group))}
        late = first_words(target, modern() | only | {SHARES: vector(b"")})
        if group in GROUPS_KNOWN:
            assert late.word == "retry"
            assert late.extensions[SHARES] == u16s(group)
        else:
            assert late.word == "handshake_failure", group
        old = first_words(target, OLD | only)
        # A hybrid is none for 1.2 (draft-ietf-tls-ecdhe-mlkem section 4).
        assert old.word == ("1.2" if group in GROUPS_KNOWN - {HYBRID} else "handshake_failure"), group


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_compression(target: Target, version: str) -> None:
    """CRIME: the server chooses none in 1.2, and a client of 1.3 may offer none (RFC 8446 section 4.1.2)."""
    both = b"\1\0"
    if version == "1.3":
        assert first_words(target, modern().but(compressions=both)).word == "illegal_parameter"
    else:
        answer = first_words(target, OLD.but(compressions=both))
        assert (answer.word, answer.compression) == ("1.2", 0)
        assert first_words(target, OLD.but(compressions=b"\1")).word == "illegal_parameter"


def test_secure_renegotiation(target: Target) -> None:
    """RFC 5746 section 3.6: the extension answers itself and the signal, and must be empty in a first hello."""
    assert first_words(target, OLD).extensions[RENEGOTIATION] == b"\0"
    signalled = (OLD | {RENEGOTIATION: None}).but(suites=(*SUITES_1_2, SECURE))
    assert first_words(target, signalled).extensions[RENEGOTIATION] == b"\0"


def test_extended_master_secret(target: Target) -> None:
    """RFC 7627 section 5.2."""
    assert first_words(target, OLD | {MASTER_SECRET: b""}).extensions[MASTER_SECRET] == b""
    assert MASTER_SECRET not in first_words(target, OLD).extensions


def test_a_fallback_is_told_in_the_random(target: Target) -> None:
    """RFC 7507 section 3 has servers refuse it, but rustls ignores the signal. That an attacker has brought
    it to an older version, a client of 1.3 sees by the random, which is signed (RFC 8446 section 4.1.3)."""
    answer = first_words(target, OLD.but(suites=(*SUITES_1_2, FALLBACK)))
    assert answer.word == "1.2"
    assert answer.random.endswith(DOWNGRADED)
    assert first_words(target, modern(*SUITES_1_3, FALLBACK)).word == "1.3"


def test_a_downgrade_is_told_in_the_random(target: Target) -> None:
    assert first_words(target, OLD).random.endswith(DOWNGRADED)
    assert not first_words(target, modern()).random.endswith(DOWNGRADED)


def test_randoms_are_random(target: Target) -> None:
    """In eight hellos of each version no byte of the random is the same in all."""
    for hello in (OLD, modern()):
        randoms = [first_words(target, hello).random[:24] for _ in range(8)]
        assert len(set(randoms)) == 8
        assert not [at for at in range(24) if len({random[at] for random in randoms}) == 1]


def test_heartbleed(target: Target) -> None:
    """The server speaks of no heartbeats, and one that asks for more than it brings ends the connection."""
    for hello in (OLD, modern()):
        assert HEARTBEATS not in first_words(target, hello | {HEARTBEATS: b"\1"}).extensions
        greedy = record(HEARTBEAT, b"\1\x40\x00")
        said = (hello | {HEARTBEATS: b"\1"}).record()
        behind_it = first_words(target, said + greedy)
        assert HEARTBEAT not in behind_it.kinds
        before_it = first_words(target, greedy + said)
        assert set(before_it.kinds) <= {ALERT}
        assert before_it.alert


def test_sessions_are_echoed_in_1_3_and_not_resumed_by_number(target: Target) -> None:
    """Ticketbleed: what comes back is as long as what was sent."""
    for length in (0, 1, 16, 31, 32):
        session = bytes(range(1, length + 1))
        assert first_words(target, modern().but(session=session)).session == session
        assert first_words(target, OLD.but(session=session)).session != session or not session
        ticket = {TICKET: bytes(48)}
        assert len(first_words(target, OLD.but(session=session) | ticket).session) in (0, length, 32)
    for hello in (OLD, modern()):
        assert first_words(target, hello.but(session=bytes(33))).word == "decode_error"


UNSAID: dict[str, dict[int, bytes | None]] = {
    # RFC 6066 section 8: a server that has no answer of OCSP does not send one.
    "OCSP": {STATUS: b"\1\0\0\0\0"},
    # RFC 7366 section 3: not with AEAD.
    "the MAC behind": {MAC_LATER: b""},
    "a limit of records": {SIZE_LIMIT: u16s(0x4000)},
    "early data": {EARLY: b""},
    "the next protocol": {13172: b""},
    "GREASE": {0x0A0A: b"", 0xFAFA: b"\0"},
}


@pytest.mark.parametrize("name", UNSAID)
def test_extensions_that_the_server_does_not_answer(target: Target, name: str) -> None:
    extra = UNSAID[name]
    answer = first_words(target, OLD | extra)
    assert (answer.word, set(answer.extensions) & set(extra)) == ("1.2", set())
    # CertificateStatus is no message of it.
    assert 22 not in answer.messages
    answer = first_words(target, modern() | extra)
    assert (answer.word, set(answer.extensions)) == ("1.3", {VERSIONS, SHARES})


def test_the_server_says_only_what_it_was_asked(target: Target) -> None:
    """RFC 5246 section 7.4.1.4: an extension that the client did not send is none for the server."""
    bare = OLD | {SERVER_NAME: None, RENEGOTIATION: None, FORMATS: None}
    assert first_words(target, bare).extensions == {}


def test_protocols_above(target: Target) -> None:
    """RFC 7301 section 3.2."""
    chosen = first_words(target, OLD | {ALPN: vector(b"\3foo" + b"\2h2")})
    assert chosen.extensions[ALPN] == vector(b"\2h2")
    assert first_words(target, OLD | {ALPN: vector(b"\3foo")}).word == "no_application_protocol"
    # The server encrypts its choice there, and that it has none.
    assert first_words(target, modern() | {ALPN: vector(b"\2h2")}).word == "1.3"
    assert first_words(target, modern() | {ALPN: vector(b"\3foo")}).word == "1.3 and an alert"


WITHOUT_A_WORD = {"ecdsa": {0x0503, 0x0603, 0x0807}, "rsa": set[int]()}
"""The key could sign so in 1.2, or the suite has another kind of key. rustls ends without an alert, which RFC 5246
section 7.2.2 wants."""


def test_signatures(target: Target, kind_of_key: str) -> None:
    """The server signs by what the client knows and its key can, and never by SHA-1 or MD5."""
    able = {"ecdsa": {0x0403}, "rsa": {0x0401, 0x0501, 0x0601, 0x0804, 0x0805, 0x0806}}[kind_of_key]
    # Signatures of PKCS #1 are only for certificates there (RFC 8446 section 4.2.3).
    able_in_1_3 = able - {0x0401, 0x0501, 0x0601}
    every = [0x0101, 0x0201, 0x0202, 0x0203, 0x0301, 0x0303, 0x0401, 0x0402, 0x0403, 0x0501, 0x0503, 0x0601, 0x0603]
    came: dict[str, set[int]] = {}
    for scheme in [*every, *range(0x0804, 0x080C), 0x0904, 0x0A0A]:
        for hello in (OLD, modern()):
            word = first_words(target, hello | {SIGNATURES: vector(u16s(scheme))}).word
            came.setdefault(word, set()).add(scheme)
    assert came.pop("1.2") == able
    assert came.pop("1.3") == able_in_1_3
    assert came.pop("closed", set()) == WITHOUT_A_WORD[kind_of_key]
    assert set(came) == {"handshake_failure", "1.3 and an alert"}


def test_padding(target: Target) -> None:
    """RFC 7685, with which hellos are as long as the hellos that some servers do not survive (of 256 to 511 bytes)."""
    for hello in (OLD, modern()):
        for length in (0, 1, 100, 200, 255, 300, 400, 1_000, 16_000):
            assert first_words(target, hello | {21: bytes(length)}).word in ("1.2", "1.3"), length


def test_shares_of_points_that_are_none(target: Target) -> None:
    """RFC 8446 section 4.2.8.2, and RFC 7748 section 6.1."""
    for group, key in ((P256, b"\4" + bytes(64)), (P384, b"\4" + b"\1" * 96), (X25519, bytes(32)), (P256, b"\0")):
        answer = first_words(target, modern() | {GROUPS: vector(u16s(group)), SHARES: vector(share(group, key))})
        assert answer.word == "illegal_parameter", group


def test_handshake_records_of_old_versions(target: Target) -> None:
    """RFC 8446 section 5.1: the version of a record is to be ignored."""
    for version in (0x0300, 0x0301, 0x0302, 0x0303, 0x0304):
        assert first_words(target, record(HANDSHAKE, modern().message(), version)).word == "1.3"
