//! One POST to a collector (OTLP specification, "OTLP/HTTP").

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::TcpStream;

use super::proto::ExportTraceServiceResponse;
use stanchion_settings::Collector;

/// OpenTelemetry's default for one attempt.
const LIMIT: Duration = Duration::from_secs(10);
/// The longest answer that the exporter reads.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Why the collector has not taken spans.
#[derive(Debug)]
pub(super) enum Failure {
    /// The collector may take the spans later.
    Passing(String),
    /// The collector will never take some of the spans, or all.
    Refused {
        /// How many; `None` = all.
        spans: Option<u64>,
        why: String,
    },
}

/// Sends a message, and waits for the answer.
pub(super) async fn post(collector: &Collector, message: Bytes) -> Result<(), Failure> {
    let answer = tokio::time::timeout(LIMIT, exchange(collector, message));
    match answer.await {
        Ok(Ok((status, body))) => judge(status, &body),
        Ok(Err(error)) => Err(Failure::Passing(error.to_string())),
        Err(_) => Err(Failure::Passing(format!(
            "no answer within {} s",
            LIMIT.as_secs()
        ))),
    }
}

/// Opens a connection for each message, since there is one in a second and no collector keeps idle connections for
/// ever.
async fn exchange(collector: &Collector, message: Bytes) -> io::Result<(StatusCode, Bytes)> {
    let stream = TcpStream::connect((collector.host(), collector.port())).await?;
    let opened = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = opened.map_err(io::Error::other)?;
    let request = Request::post(collector.path())
        .header(HOST, collector.authority())
        .header(CONTENT_TYPE, "application/x-protobuf")
        .header(USER_AGENT, concat!("stanchion/", env!("CARGO_PKG_VERSION")))
        .header(CONNECTION, "close")
        .body(Full::new(message))
        .map_err(io::Error::other)?;
    let answered = async {
        let answer = sender.send_request(request).await;
        let (head, body) = answer.map_err(io::Error::other)?.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(io::Error::other)?.to_bytes();
        Ok((head.status, body))
    };
    // This task moves the bytes of `answered`, which says how it went.
    let moved = tokio::spawn(connection);
    let answer = answered.await;
    moved.abort();
    answer
}

/// Gives the meaning of an answer ("Failures", "Partial Success").
fn judge(status: StatusCode, body: &[u8]) -> Result<(), Failure> {
    match status {
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Err(Failure::Passing(status.to_string())),
        _ if !status.is_success() => Err(Failure::Refused {
            spans: None,
            why: status.to_string(),
        }),
        _ => match ExportTraceServiceResponse::decode(body).map(|answer| answer.partial_success) {
            Ok(Some(partial)) if partial.rejected_spans > 0 => Err(Failure::Refused {
                spans: u64::try_from(partial.rejected_spans).ok(),
                why: partial.error_message,
            }),
            // Some collectors answer with another body than they should, though they took the spans.
            Ok(_) | Err(_) => Ok(()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spans::proto::ExportTracePartialSuccess;

    fn judged(status: u16, body: &[u8]) -> String {
        let status = StatusCode::from_u16(status).expect("a status");
        match judge(status, body) {
            Ok(()) => "taken".to_owned(),
            Err(Failure::Passing(_)) => "later".to_owned(),
            Err(Failure::Refused { spans, .. }) => format!("refused {spans:?}"),
        }
    }

    #[test]
    fn answers_mean_what_the_specification_says() {
        for (status, meaning) in [
            (200, "taken"),
            (202, "taken"),
            (301, "refused None"),
            (400, "refused None"),
            (404, "refused None"),
            (429, "later"),
            (500, "refused None"),
            (502, "later"),
            (503, "later"),
            (504, "later"),
        ] {
            assert_eq!(judged(status, b""), meaning, "{status}");
        }
        assert_eq!(judged(200, b"{}"), "taken");
        let partial_success = |rejected_spans| {
            ExportTraceServiceResponse {
                partial_success: Some(ExportTracePartialSuccess {
                    rejected_spans,
                    error_message: "too old".to_owned(),
                }),
            }
            .encode_to_vec()
        };
        assert_eq!(judged(200, &partial_success(0)), "taken");
        assert_eq!(judged(200, &partial_success(3)), "refused Some(3)");
    }
}
