//! The messages of OTLP that the exporter sends and receives, with the fields that it uses, as JSON (OTLP specification,
//! "JSON Protobuf Encoding"): keys in lowerCamelCase, ids in hexadecimal digits, enumerations as integers, and 64-bit integers
//! as decimal texts. The names of the fields are in opentelemetry-proto (`trace.proto`, `common.proto`, `resource.proto`,
//! `trace_service.proto`), which keeps them for ever (its section "Stability definition").

use std::borrow::Cow;
use std::fmt::Display;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize, Serializer};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExportTraceServiceRequest<'a> {
    pub(super) resource_spans: [ResourceSpans<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResourceSpans<'a> {
    pub(super) resource: Resource<'a>,
    pub(super) scope_spans: [ScopeSpans<'a>; 1],
}

#[derive(Serialize)]
pub(super) struct Resource<'a> {
    pub(super) attributes: Vec<KeyValue<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ScopeSpans<'a> {
    pub(super) scope: InstrumentationScope,
    pub(super) spans: Vec<Span<'a>>,
    pub(super) schema_url: &'static str,
}

#[derive(Serialize)]
pub(super) struct InstrumentationScope {
    pub(super) name: &'static str,
    pub(super) version: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Span<'a> {
    pub(super) trace_id: HexId<16>,
    pub(super) span_id: HexId<8>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) trace_state: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parent_span_id: Option<HexId<8>>,
    pub(super) name: &'a str,
    pub(super) kind: u8,
    #[serde(serialize_with = "decimal")]
    pub(super) start_time_unix_nano: u64,
    #[serde(serialize_with = "decimal")]
    pub(super) end_time_unix_nano: u64,
    pub(super) attributes: Vec<KeyValue<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<SpanStatus>,
    pub(super) flags: u32,
}

/// Values of [`Span::kind`].
pub(super) const KIND_INTERNAL: u8 = 1;
pub(super) const KIND_SERVER: u8 = 2;

/// Bits of [`Span::flags`], beside the eight bits of the Trace Context: it is known where the parent is, and the parent
/// is elsewhere.
pub(super) const CONTEXT_HAS_IS_REMOTE: u32 = 0x100;
pub(super) const CONTEXT_IS_REMOTE: u32 = 0x200;

#[derive(Serialize)]
pub(super) struct SpanStatus {
    code: u8,
}

impl SpanStatus {
    pub(super) const ERROR: Self = Self { code: 2 };
}

#[derive(Serialize)]
pub(super) struct KeyValue<'a> {
    key: &'a str,
    value: AnyValue<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum AnyValue<'a> {
    StringValue(Cow<'a, str>),
    #[serde(serialize_with = "decimal")]
    IntValue(i64),
}

impl<'a> KeyValue<'a> {
    pub(super) fn text(key: &'a str, value: impl Into<Cow<'a, str>>) -> Self {
        let value = AnyValue::StringValue(value.into());
        Self { key, value }
    }

    pub(super) fn number(key: &'a str, value: u64) -> Self {
        let value = AnyValue::IntValue(value.cast_signed());
        Self { key, value }
    }
}

/// Bytes that are sent as hexadecimal digits.
pub(super) struct HexId<const LEN: usize>(pub(super) [u8; LEN]);

impl<const LEN: usize> Serialize for HexId<LEN> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&HEXLOWER.encode_display(&self.0))
    }
}

fn decimal<S: Serializer>(number: &impl Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(number)
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ExportTraceServiceResponse {
    pub(super) partial_success: Option<ExportTracePartialSuccess>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ExportTracePartialSuccess {
    rejected_spans: Option<Int64>,
    error_message: Option<String>,
}

/// Writers of protobuf's JSON send a text, and readers accept a number too (protobuf, "`ProtoJSON` Format").
#[derive(Deserialize)]
#[serde(untagged)]
enum Int64 {
    Number(i64),
    Text(String),
}

impl ExportTracePartialSuccess {
    /// How many spans the collector has rejected, and its reason, if there are any.
    pub(super) fn rejected(self) -> Option<(u64, String)> {
        let spans = match self.rejected_spans? {
            Int64::Number(number) => u64::try_from(number).ok(),
            Int64::Text(text) => text.parse().ok(),
        };
        let why = self.error_message.unwrap_or_default();
        spans.filter(|&spans| spans > 0).map(|spans| (spans, why))
    }
}
