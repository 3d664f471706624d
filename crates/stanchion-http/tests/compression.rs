//! The coding that a client gets, against a plain model of RFC 9110 section 12.5.3; and the resulting heads, for any head of an app.

use proptest::prelude::*;
use stanchion_http::{
    BodyLength, Coding, CompressRules, Compression, Head, check, fields, put_compressed, put_varied,
};

const TOKENS: [&str; 6] = ["gzip", "br", "zstd", "identity", "*", "deflate"];

/// A coding and its weight in thousandths, if it has one.
fn element() -> impl Strategy<Value = (&'static str, Option<u16>)> {
    let weight = prop_oneof![Just(0), Just(1), Just(500), Just(1_000), 0..=1_000_u16];
    (prop::sample::select(&TOKENS[..]), prop::option::of(weight))
}

fn shown((token, weight): &(&str, Option<u16>)) -> String {
    match weight {
        None => (*token).to_owned(),
        Some(weight) => format!("{token};q={}.{:03}", weight / 1_000, weight % 1_000),
    }
}

fn order() -> impl Strategy<Value = Vec<Coding>> {
    prop::sample::subsequence(Coding::ALL.to_vec(), 1..=3).prop_shuffle()
}

proptest! {
    #[test]
    fn a_client_gets_what_it_wants_most_and_the_server_has(
        elements in prop::collection::vec(element(), 0..6),
        order in order(),
    ) {
        let names: Vec<_> = order.iter().map(|coding| coding.name()).collect();
        let rules = CompressRules::new(&names.join(","), "text/*", 0);
        let rules = rules.expect("they make sense").expect("there are some");
        let accepted: Vec<_> = elements.iter().map(shown).collect();
        let request = Head::of("GET", "/", &[("Accept-Encoding", &accepted.join(", "))]);
        let judged = rules.judge(&request, 200, b"HTTP/1.1 200 OK\r\nContent-Type: text/a\r\n", None);

        let said = |token: &str| elements.iter().find(|(known, _)| *known == token);
        let weight = |(_, weight): &(&str, Option<u16>)| weight.unwrap_or(1_000);
        let of = |token: &str| said(token).or(said("*")).map_or(0, weight);
        let as_it_is = said("identity").map_or(0, weight);
        let mut best = None;
        for coding in order {
            let weight = of(coding.name());
            if weight > 0 && weight >= as_it_is && best.is_none_or(|(most, _)| weight > most) {
                best = Some((weight, coding));
            }
        }
        let expected = best.map_or(Compression::NotForThisClient, |(_, coding)| Compression::With(coding));
        prop_assert_eq!(judged, expected, "{:?}", accepted);
    }

    #[test]
    fn a_head_stays_one_whatever_is_in_it(
        told in prop::collection::vec(("[eE][tT]ag|[vV]ary|accept-ranges|x-[a-z]{1,4}|set-cookie", "[!-~]{0,3}|\"[a-z]\"|\\*|a, Accept-Encoding"), 0..6),
        len in prop::option::of(0..9_u64),
    ) {
        let mut wire = b"HTTP/1.1 200 OK\r\n".to_vec();
        for (name, value) in &told {
            stanchion_http::put_field(&mut wire, name.as_bytes(), value.as_bytes());
        }
        if let Some(len) = len {
            stanchion_http::put_field(&mut wire, b"content-length", len.to_string().as_bytes());
        }
        let before = check(&wire, false).expect("the app may say so");
        let (mut compressed, mut varied) = (Vec::new(), Vec::new());
        put_compressed(&mut compressed, &wire, Coding::Gzip);
        put_varied(&mut varied, &wire);
        let after = check(&compressed, false).expect("it is a head");
        prop_assert_eq!(after.length, BodyLength::Unknown);
        prop_assert_eq!(check(&varied, false).expect("it is a head"), before);
        let count = |wire: &[u8], known: &str| {
            fields(wire).filter(|(name, _)| name.eq_ignore_ascii_case(known.as_bytes())).count()
        };
        prop_assert_eq!(count(&compressed, "content-encoding"), 1);
        prop_assert_eq!(count(&compressed, "set-cookie"), count(&wire, "set-cookie"));
        prop_assert_eq!(count(&compressed, "vary"), count(&varied, "vary"));
        prop_assert!(count(&varied, "vary") >= 1);
        // A second `Vary` is not needed.
        let mut again = Vec::new();
        put_varied(&mut again, &varied);
        prop_assert_eq!(again, varied);
    }
}
