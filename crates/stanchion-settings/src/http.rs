//! HTTP by the settings: which versions are spoken, and how heads are read.

use stanchion_http::{CompressRules, FieldRules, Permits, SchemeFields};

use super::{Believed, Http2Cleartext, Settings};

impl Settings {
    /// Whether HTTP/2 is spoken with a client that begins with it on a connection without TLS.
    pub fn takes_http2_cleartext(&self) -> bool {
        self.http.http2_cleartext == Http2Cleartext::PriorKnowledge && self.speaks_http2()
    }

    /// Whether HTTP/2 is spoken where the connection allows it.
    pub fn speaks_http2(&self) -> bool {
        let mut words = self.http.http_protocols.split(',');
        words.any(|word| word.trim().eq_ignore_ascii_case("h2"))
    }

    /// Which requests are taken that no client should send.
    pub fn permits(&self) -> Permits {
        Permits {
            unconventional_method: self.http.permit_unconventional_http_method,
            unconventional_version: self.http.permit_unconventional_http_version,
            casefold_method: self.http.casefold_http_method,
            obsolete_folding: self.http.permit_obsolete_folding,
            header_spaces: self.http.strip_header_spaces,
        }
    }

    /// Which answers are compressed, if any are.
    pub fn compress_rules(&self) -> Option<CompressRules> {
        let rules = CompressRules::new(
            &self.answers.compress,
            &self.answers.compress_types,
            self.answers.compress_min_size,
        );
        rules.expect("the table has checked them")
    }

    /// Which fields the app sees.
    pub fn field_rules(&self) -> FieldRules {
        FieldRules::new(self.http.header_map, &self.proxies.forwarder_headers)
    }

    /// The peers that are believed when they name the client of a request, and the field in which they name it.
    pub fn believed(&self) -> Believed {
        Believed {
            peers: self.proxies.forwarded_allow_ips.clone(),
            field: self.proxies.forwarded_header,
        }
    }

    /// Where proxies say by which scheme the client came.
    pub fn scheme_fields(&self) -> SchemeFields {
        let fields = self.proxies.secure_scheme_headers.iter();
        SchemeFields::new(fields.map(|(name, https)| (&**name, &**https)))
    }
}
