//! A connection against a client built on rustls.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, Error, HandshakeKind, RootCertStore, SupportedProtocolVersion,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{PrivateKeyDer, ServerName};

use super::*;
use crate::certificate::Certificate;
use crate::config::{ClientAuth, TlsOptions, Version};
use crate::credentials::{Credentials, certificates};
use crate::tickets::TICKET_KEY_BYTES;
use crate::tickets::tests::SetClock;

const ROOT: &[u8] = include_bytes!("../../tests/keys/root.pem");
const ONE: &[u8] = include_bytes!("../../tests/keys/one.pem");
const ONE_KEY: &[u8] = include_bytes!("../../tests/keys/one.key");
const TWO: &[u8] = include_bytes!("../../tests/keys/two.pem");
const TWO_KEY: &[u8] = include_bytes!("../../tests/keys/two.key");
const CLIENT: &[u8] = include_bytes!("../../tests/keys/client.pem");
const CLIENT_KEY: &[u8] = include_bytes!("../../tests/keys/client.key");

const OLD: &[&SupportedProtocolVersion] = &[&TLS12];
const NEW: &[&SupportedProtocolVersion] = &[&TLS13];
const BOTH: &[&SupportedProtocolVersion] = &[&TLS12, &TLS13];

fn options() -> TlsOptions {
    TlsOptions {
        credentials: vec![
            Credentials::read(ONE, ONE_KEY).unwrap(),
            Credentials::read(TWO, TWO_KEY).unwrap(),
        ],
        oldest: Version::Tls12,
        suites: None,
        alpn: vec![b"http/1.1".to_vec()],
        clients: None,
        ticket_lifetime_s: 60,
    }
}

/// The same for a server that asks clients for certificates of these issuers.
fn asking(authorities: &[u8], is_required: bool) -> TlsOptions {
    TlsOptions {
        clients: Some(ClientAuth {
            authorities: authorities.to_vec(),
            is_required,
        }),
        ..options()
    }
}

fn server(options: TlsOptions) -> Tls {
    server_with(options, 7)
}

/// A connection of a server with this ticket key.
fn server_with(options: TlsOptions, key: u8) -> Tls {
    let config = Config::new(options).unwrap();
    config.set_ticket_keys(&[[key; TICKET_KEY_BYTES]]);
    Tls::new(&config).unwrap()
}

fn client_config(versions: &[&'static SupportedProtocolVersion], shows: bool) -> ClientConfig {
    client_config_by(ring::default_provider(), versions, shows)
}

fn client_config_by(
    provider: CryptoProvider,
    versions: &[&'static SupportedProtocolVersion],
    shows: bool,
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(certificates(ROOT).unwrap().remove(0)).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    let key = PrivateKeyDer::from_pem_slice(CLIENT_KEY).unwrap();
    let mut config = if shows {
        let shown = certificates(CLIENT).unwrap();
        builder.with_client_auth_cert(shown, key).unwrap()
    } else {
        builder.with_no_client_auth()
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

fn client_of(config: &Arc<ClientConfig>, name: &'static str) -> ClientConnection {
    let name = ServerName::try_from(name).unwrap();
    ClientConnection::new(Arc::clone(config), name).unwrap()
}

fn client(name: &'static str) -> ClientConnection {
    client_of(&Arc::new(client_config(BOTH, false)), name)
}

/// The bytes that a client has to send.
fn said(client: &mut ClientConnection) -> Vec<u8> {
    let mut out = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut out).unwrap();
    }
    out
}

/// The bytes that a server has to send.
fn answered(server: &mut Tls) -> Vec<u8> {
    let mut out = Vec::new();
    while server.waits() {
        server.send(&mut out).unwrap();
    }
    out
}

fn hear(client: &mut ClientConnection, mut bytes: &[u8]) -> Result<(), Error> {
    while !bytes.is_empty() {
        client.read_tls(&mut bytes).unwrap();
        client.process_new_packets()?;
    }
    Ok(())
}

/// Passes bytes between both, in pieces of this size, until neither has more to send.
fn talk(client: &mut ClientConnection, server: &mut Tls, step: usize) -> Result<(), TlsFault> {
    loop {
        let said = said(client);
        for piece in said.chunks(step) {
            assert_eq!(server.take(piece)?, piece.len());
        }
        let answered = answered(server);
        if said.is_empty() && answered.is_empty() {
            return Ok(());
        }
        hear(client, &answered).map_err(|error| TlsFault(error.to_string()))?;
    }
}

fn joined(name: &'static str) -> (ClientConnection, Tls) {
    joined_by(BOTH, name)
}

/// A client that speaks these versions, and its server, after their handshake.
fn joined_by(
    versions: &[&'static SupportedProtocolVersion],
    name: &'static str,
) -> (ClientConnection, Tls) {
    let config = Arc::new(client_config(versions, false));
    let (mut client, mut server) = (client_of(&config, name), server(options()));
    talk(&mut client, &mut server, usize::MAX).unwrap();
    (client, server)
}

#[test]
fn bytes_go_both_ways_in_whatever_pieces_they_come() {
    for versions in [OLD, NEW] {
        for step in [1, 7, 1000, usize::MAX] {
            let config = Arc::new(client_config(versions, false));
            let (mut client, mut server) = (client_of(&config, "one.test"), server(options()));
            assert!(server.is_handshaking());
            talk(&mut client, &mut server, step).unwrap();
            assert!(!server.is_handshaking() && !server.waits());
            assert_eq!(server.alpn(), Some(&b"http/1.1"[..]));
            assert_eq!(server.server_name(), Some("one.test"));
            client.writer().write_all(b"question").unwrap();
            talk(&mut client, &mut server, step).unwrap();
            assert_eq!(server.unread(), 8);
            let mut got = Vec::with_capacity(5);
            assert_eq!((server.read(&mut got), server.read(&mut got)), (5, 0));
            assert_eq!(got, b"quest");
            got.reserve(3);
            assert_eq!(server.read(&mut got), 3);
            assert_eq!((&got[..], server.unread()), (&b"question"[..], 0));
            let parts = [
                IoSlice::new(b"ans"),
                IoSlice::new(b""),
                IoSlice::new(b"wer"),
            ];
            assert_eq!(server.write(&parts), Ok(6));
            talk(&mut client, &mut server, step).unwrap();
            let mut got = [0; 9];
            assert_eq!(client.reader().read(&mut got).unwrap(), 6);
            assert_eq!(&got[..6], b"answer");
        }
    }
}

#[test]
fn what_waits_to_be_sent_is_bounded() {
    let (mut client, mut server) = joined("one.test");
    let block = vec![b'x'; 1 << 20];
    let mut left = &block[..];
    let mut got = Vec::new();
    while !left.is_empty() {
        let len = server.write(&[IoSlice::new(left)]).unwrap();
        assert!(len > 0);
        left = &left[len..];
        let waiting = server.waiting();
        assert!(
            waiting >= len && waiting <= CIPHERTEXT_BYTES_MAX + 1024,
            "{waiting}"
        );
        assert_eq!(server.write(&[IoSlice::new(&block)]), Ok(0));
        // The socket takes a part of it.
        let mut some = [0; 5000];
        let sent = server.send(&mut &mut some[..]).unwrap();
        assert_eq!((sent, server.waiting()), (5000, waiting - 5000));
        hear(&mut client, &some).unwrap();
        while server.waits() {
            let mut some = [0; 5000];
            let sent = server.send(&mut &mut some[..]).unwrap();
            hear(&mut client, &some[..sent]).unwrap();
            let mut part = [0; 16 << 10];
            while let Ok(len) = client.reader().read(&mut part) {
                got.extend_from_slice(&part[..len]);
            }
        }
        assert_eq!(server.waiting(), 0);
    }
    assert!(got == block);
}

#[test]
fn what_is_not_read_holds_up_what_comes() {
    let (mut client, mut server) = joined("one.test");
    let block: Vec<u8> = (0..200_000_u32).map(|index| index as u8).collect();
    client.set_buffer_limit(None);
    client.writer().write_all(&block).unwrap();
    let said = said(&mut client);
    let taken = server.take(&said).unwrap();
    assert!(
        taken < said.len() && server.unread() <= 3 * PLAINTEXT_BYTES_MAX,
        "{taken}"
    );
    assert_eq!(server.take(&said[taken..]), Ok(0));
    let (mut rest, mut got) = (&said[taken..], Vec::new());
    while got.len() < block.len() {
        let mut some = Vec::with_capacity(10_000);
        server.read(&mut some);
        got.extend_from_slice(&some);
        let taken = server.take(rest).unwrap();
        rest = &rest[taken..];
    }
    assert!(got == block && server.unread() == 0);
}

#[test]
fn an_end_is_told_from_what_just_stops() {
    let (mut client, mut server) = joined("one.test");
    client.writer().write_all(b"last").unwrap();
    client.send_close_notify();
    let said = said(&mut client);
    assert!(!server.is_over());
    server.take(&said).unwrap();
    assert!(server.is_over() && server.unread() == 4);
    assert_eq!(server.take(b"more"), Ok(0));
    // The server can still answer.
    assert_eq!(server.write(&[IoSlice::new(b"answer")]), Ok(6));
    server.close();
    hear(&mut client, &answered(&mut server)).unwrap();
    let mut got = Vec::new();
    client.reader().read_to_end(&mut got).unwrap();
    assert_eq!(got, b"answer");
}

#[test]
fn keys_are_exchanged_by_what_withstands_quantum_computers_where_the_client_knows_it() {
    for (versions, knows_it, expected) in [
        (NEW, true, NamedGroup::X25519MLKEM768),
        (NEW, false, NamedGroup::X25519),
        (OLD, true, NamedGroup::X25519),
    ] {
        for step in [1, 7, 1_000, usize::MAX] {
            let mut provider = ring::default_provider();
            if knows_it {
                provider.kx_groups.insert(0, &crate::hybrid::tests::Client);
            }
            // A new config each time: a session resumed in TLS 1.2 exchanges no keys.
            let config = client_config_by(provider, versions, false);
            let mut client = client_of(&Arc::new(config), "one.test");
            let mut server = server(options());
            assert_eq!(server.group(), None);
            talk(&mut client, &mut server, step).unwrap();
            assert_eq!(server.group(), Some(expected), "{step}");
        }
    }
}

#[test]
fn a_connection_that_failed_takes_nothing_to_write() {
    for versions in [OLD, NEW] {
        let (mut client, mut server) = joined_by(versions, "one.test");
        let garbage = [&b"\x17\x03\x03\x00\x20"[..], &[0; 32]].concat();
        server.take(&garbage).unwrap_err();
        server.write(&[IoSlice::new(b"answer")]).unwrap_err();
        // Writing fails also after the client has its alert.
        hear(&mut client, &answered(&mut server)).unwrap_err();
        server.write(&[IoSlice::new(b"answer")]).unwrap_err();
    }
}

#[test]
fn take_discards_what_comes_after_close() {
    let (_, mut server) = joined("one.test");
    server.close();
    assert_eq!(server.take(b"garbage"), Ok(7));
    assert!(!server.has_failed());
}

#[test]
fn keys_of_tls_1_2_are_used_up_by_records_and_those_of_tls_1_3_renewed() {
    for (versions, is_renewed) in [(OLD, false), (NEW, true)] {
        let (_, mut server) = joined_by(versions, "one.test");
        // AES-GCM: 2²⁴ records (RFC 9325 section 4.4).
        server.records = (1 << 24) - RECORDS_KEPT_BACK - 1;
        assert_eq!(server.write(&[IoSlice::new(b"last")]), Ok(4));
        let more = server.write(&[IoSlice::new(b"more")]);
        assert_eq!(more.is_ok(), is_renewed, "{more:?}");
        assert_eq!(server.is_worn(), !is_renewed);
        server.records -= RECORDS_TO_END;
        assert!(!server.is_worn());
    }
}

#[test]
fn a_client_that_speaks_something_else_is_told_by_an_alert() {
    let mut server = server(options());
    let fault = server.take(b"GET / HTTP/1.1\r\n\r\n").unwrap_err();
    assert!(!fault.to_string().is_empty());
    // An alert (type 21) that is fatal (RFC 8446 section 6).
    let told = answered(&mut server);
    assert!(told.len() == 7 && told[0] == 21 && told[5] == 2, "{told:?}");
    assert!(server.take(b"x").is_err());
}

#[test]
fn a_client_gets_the_certificate_of_the_name_it_asks_for() {
    for (name, subject) in [
        ("one.test", r"O=One\, Inc.,CN=one.test"),
        ("a.one.test", r"O=One\, Inc.,CN=one.test"),
        ("two.test", "CN=two.test"),
        // Without a name: an address is not a name (RFC 6066 section 3).
        ("127.0.0.1", r"O=One\, Inc.,CN=one.test"),
    ] {
        let (client, _) = joined(name);
        let shown = Certificate::read(&client.peer_certificates().unwrap()[0]).unwrap();
        assert_eq!(shown.subject, subject, "{name}");
    }
    // A client that asks for another name gets the first certificate, and refuses it itself.
    let (mut client, mut server) = (client("three.test"), server(options()));
    let fault = talk(&mut client, &mut server, usize::MAX).unwrap_err();
    assert!(fault.to_string().contains("three.test"), "{fault}");
}

#[test]
fn versions_and_suites_are_those_that_are_asked_for() {
    let shaken = |options: TlsOptions, versions| {
        let config = Arc::new(client_config(versions, false));
        let (mut client, mut server) = (client_of(&config, "two.test"), server(options));
        talk(&mut client, &mut server, usize::MAX).map(|()| (server.version(), server.suite()))
    };
    let only = |name: &str| TlsOptions {
        suites: Some(name.to_owned()),
        ..options()
    };
    let old = "ECDHE-RSA-AES128-GCM-SHA256";
    let new = "TLS_CHACHA20_POLY1305_SHA256";
    assert_eq!(shaken(only(old), BOTH), Ok(("TLSv1.2", old.to_owned())));
    assert_eq!(shaken(only(new), BOTH), Ok(("TLSv1.3", new.to_owned())));
    assert!(shaken(only(new), OLD).is_err());
    let newest = || TlsOptions {
        oldest: Version::Tls13,
        ..options()
    };
    assert_eq!(shaken(newest(), BOTH).unwrap().0, "TLSv1.3");
    assert!(shaken(newest(), OLD).is_err());
    let nothing = TlsOptions {
        suites: Some(old.to_owned()),
        ..newest()
    };
    assert_eq!(Config::new(nothing).unwrap_err(), crate::Flaw::NoSuite);
}

#[test]
fn clients_show_certificates_where_they_are_asked_to() {
    let shaken = |options, shows| {
        let config = Arc::new(client_config(BOTH, shows));
        let (mut client, mut server) = (client_of(&config, "one.test"), server(options));
        talk(&mut client, &mut server, usize::MAX).map(|()| {
            let shown = server.client_chain().next().map(Certificate::read);
            shown.flatten().map(|shown| shown.subject)
        })
    };
    let subject = r#"CN=a \"client\",O=Shop,C=DE"#.to_owned();
    assert_eq!(shaken(options(), true), Ok(None));
    assert_eq!(shaken(asking(ROOT, false), false), Ok(None));
    assert_eq!(shaken(asking(ROOT, false), true), Ok(Some(subject.clone())));
    assert_eq!(shaken(asking(ROOT, true), true), Ok(Some(subject)));
    assert!(shaken(asking(ROOT, true), false).is_err());
    // The client's issuer is not the trusted one.
    assert!(shaken(asking(TWO, false), true).is_err());
}

#[test]
fn a_session_is_resumed_by_whoever_has_the_keys_of_its_ticket() {
    let kind = |config: &Arc<ClientConfig>, options: TlsOptions, key: u8| {
        let mut client = client_of(config, "one.test");
        let mut server = server_with(options, key);
        talk(&mut client, &mut server, usize::MAX).unwrap();
        client.handshake_kind().unwrap()
    };
    for versions in [OLD, NEW] {
        let config = Arc::new(client_config(versions, false));
        assert_eq!(kind(&config, options(), 7), HandshakeKind::Full);
        assert_eq!(kind(&config, options(), 7), HandshakeKind::Resumed);
        assert_eq!(kind(&config, options(), 8), HandshakeKind::Full);
    }
}

#[test]
fn nobody_is_let_in_by_a_ticket_who_would_have_to_show_a_certificate() {
    for versions in [OLD, NEW] {
        let config = Arc::new(client_config(versions, false));
        let shaken = |options| {
            let (mut client, mut server) = (client_of(&config, "one.test"), server(options));
            talk(&mut client, &mut server, usize::MAX).map(|()| client.handshake_kind())
        };
        shaken(options()).unwrap();
        let optional = shaken(asking(ROOT, false)).unwrap();
        assert_eq!(optional, Some(HandshakeKind::Full));
        assert!(shaken(asking(ROOT, true)).is_err());
    }
}

#[test]
fn a_session_is_resumed_for_as_long_as_its_ticket_and_its_certificate_are_good() {
    let chain = certificates(CLIENT).unwrap();
    let end_s = Certificate::read(&chain[0]).unwrap().not_after_s;
    for versions in [OLD, NEW] {
        let clock = SetClock::at(0);
        let server = Config::with_clock(asking(ROOT, false), Arc::clone(&clock) as Arc<_>).unwrap();
        server.set_ticket_keys(&[[7; TICKET_KEY_BYTES]]);
        let shaken = |config: &Arc<ClientConfig>, now_s: u64| {
            clock.set(now_s);
            let mut client = client_of(config, "one.test");
            let mut server = Tls::new(&server).unwrap();
            talk(&mut client, &mut server, usize::MAX).map(|()| client.handshake_kind().unwrap())
        };
        let one = Arc::new(client_config(versions, true));
        for (now_s, expected) in [
            (end_s - 90, HandshakeKind::Full),
            (end_s - 31, HandshakeKind::Resumed),
            // Resumed by a ticket that the client got in between.
            (end_s, HandshakeKind::Resumed),
        ] {
            assert_eq!(shaken(&one, now_s), Ok(expected), "{}", end_s - now_s);
        }
        // The server asks the client for a certificate again, the client shows the expired one, and the fault names the reason.
        let fault = shaken(&one, end_s + 1).unwrap_err();
        assert!(fault.to_string().contains("expired"), "{fault}");
        let late = Arc::new(client_config(versions, true));
        for now_s in [end_s - 90, end_s - 30] {
            assert_eq!(shaken(&late, now_s), Ok(HandshakeKind::Full));
        }
    }
}
