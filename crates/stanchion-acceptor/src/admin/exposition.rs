//! Metrics as text: the Prometheus text format 0.0.4, or `OpenMetrics` 1.0 for a scraper that asks for it.

use std::fmt::{Display, Write as _};

use stanchion_dispatch::durations::Histogram;

/// The two formats. They differ in the name of a counter and in the last line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flavour {
    Prometheus,
    OpenMetrics,
}

/// How many durations there are, their sum in microseconds, and how many up to each bound.
pub(super) type HistogramData<'h> = (u64, u64, &'h [(u64, u64)]);

/// The text of a page, as far as it is written.
pub(super) struct Exposition {
    flavour: Flavour,
    text: String,
}

/// One metric, of which samples follow.
pub(super) struct Family<'e> {
    exposition: &'e mut Exposition,
    /// The metric's name, with the suffix of its samples.
    name: String,
}

impl Flavour {
    /// The format that a client prefers by its Accept field. A scraper that understands `OpenMetrics` names it, and then the
    /// weights (RFC 9110 section 12.5.1) make no difference.
    pub(super) fn accepted(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

impl Exposition {
    pub(super) fn new(flavour: Flavour) -> Self {
        Self {
            flavour,
            text: String::with_capacity(16 << 10),
        }
    }

    /// Begins a metric that only grows; `name` ends in `_total`.
    pub(super) fn counter(&mut self, name: &str, help: &str) -> Family<'_> {
        let family = match self.flavour {
            Flavour::Prometheus => name,
            Flavour::OpenMetrics => name.strip_suffix("_total").unwrap_or(name),
        };
        self.head(family, "counter", help);
        self.family(name)
    }

    /// Begins a metric that goes up and down.
    pub(super) fn gauge(&mut self, name: &str, help: &str) -> Family<'_> {
        self.head(name, "gauge", help);
        self.family(name)
    }

    /// Writes durations, in seconds.
    pub(super) fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        let durations = (histogram.count, histogram.sum_us, &histogram.buckets[..]);
        self.durations(name, None, durations);
    }

    /// Writes the durations of several things, which a label tells apart: of each their number, their sum, and the number up
    /// to each bound.
    pub(super) fn histograms<'h>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        each: impl Iterator<Item = (&'h str, HistogramData<'h>)>,
    ) {
        self.head(name, "histogram", help);
        for (said, durations) in each {
            self.durations(name, Some((label, said)), durations);
        }
    }

    fn durations(
        &mut self,
        name: &str,
        label: Option<(&str, &str)>,
        (count, sum_us, buckets): HistogramData<'_>,
    ) {
        let labels: Vec<_> = label.into_iter().collect();
        let bounds = buckets
            .iter()
            .map(|&(bound_us, count)| (seconds(bound_us), count));
        let mut family = self.family(&format!("{name}_bucket"));
        for (bound, count) in bounds.chain([("+Inf".to_owned(), count)]) {
            family.sample(&[&labels[..], &[("le", &bound)]].concat(), count);
        }
        self.family(&format!("{name}_sum"))
            .sample(&labels, seconds(sum_us));
        self.family(&format!("{name}_count")).sample(&labels, count);
    }

    pub(super) fn finish(mut self) -> String {
        if self.flavour == Flavour::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }

    fn head(&mut self, family: &str, kind: &str, help: &str) {
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(self.text, "# HELP {family} {help}\n# TYPE {family} {kind}");
    }

    fn family(&mut self, name: &str) -> Family<'_> {
        Family {
            exposition: self,
            name: name.to_owned(),
        }
    }
}

impl Family<'_> {
    /// One value, with its labels.
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) -> &mut Self {
        let text = &mut self.exposition.text;
        text.push_str(&self.name);
        for (index, (label, said)) in labels.iter().enumerate() {
            text.push(if index == 0 { '{' } else { ',' });
            let _ = write!(text, "{label}=\"");
            for character in said.chars() {
                match character {
                    '\\' => text.push_str("\\\\"),
                    '"' => text.push_str("\\\""),
                    '\n' => text.push_str("\\n"),
                    _ => text.push(character),
                }
            }
            text.push('"');
        }
        if !labels.is_empty() {
            text.push('}');
        }
        let _ = writeln!(text, " {value}");
        self
    }
}

/// The shortest decimal that is exactly so many microseconds.
pub(super) fn seconds(us: u64) -> String {
    let text = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    let kept = text.trim_end_matches('0');
    // OpenMetrics wants a bound to be a float.
    if kept.ends_with('.') {
        format!("{kept}0")
    } else {
        kept.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(flavour: Flavour) -> String {
        let mut exposition = Exposition::new(flavour);
        exposition
            .counter("requests_total", "How they ended.")
            .sample(&[("outcome", "answered")], 7)
            .sample(&[("outcome", "a\"b\\c\nd"), ("x", "")], 1);
        exposition.gauge("waiting", "Now.").sample(&[], 3);
        let histogram = Histogram {
            count: 3,
            sum_us: 1_000_250,
            max_us: 0,
            p50_us: 0,
            p90_us: 0,
            p99_us: 0,
            buckets: vec![(100, 1), (1_000_000, 2)],
        };
        exposition.histogram("wait_seconds", "In the line.", &histogram);
        let buckets = [(1_000, 4)];
        let each = [("0", (4, 2_000, &buckets[..])), ("1", (0, 0, &[]))];
        exposition.histograms("lag_seconds", "Late.", "worker", each.into_iter());
        exposition.finish()
    }

    #[test]
    fn prometheus_text() {
        let expected = r#"# HELP requests_total How they ended.
# TYPE requests_total counter
requests_total{outcome="answered"} 7
requests_total{outcome="a\"b\\c\nd",x=""} 1
# HELP waiting Now.
# TYPE waiting gauge
waiting 3
# HELP wait_seconds In the line.
# TYPE wait_seconds histogram
wait_seconds_bucket{le="0.0001"} 1
wait_seconds_bucket{le="1.0"} 2
wait_seconds_bucket{le="+Inf"} 3
wait_seconds_sum 1.00025
wait_seconds_count 3
# HELP lag_seconds Late.
# TYPE lag_seconds histogram
lag_seconds_bucket{worker="0",le="0.001"} 4
lag_seconds_bucket{worker="0",le="+Inf"} 4
lag_seconds_sum{worker="0"} 0.002
lag_seconds_count{worker="0"} 4
lag_seconds_bucket{worker="1",le="+Inf"} 0
lag_seconds_sum{worker="1"} 0.0
lag_seconds_count{worker="1"} 0
"#;
        assert_eq!(text(Flavour::Prometheus), expected);
    }

    #[test]
    fn openmetrics_differs_in_the_name_of_a_counter_and_in_its_end() {
        let expected = text(Flavour::Prometheus)
            .replace("# HELP requests_total", "# HELP requests")
            .replace("# TYPE requests_total", "# TYPE requests")
            + "# EOF\n";
        assert_eq!(text(Flavour::OpenMetrics), expected);
    }

    #[test]
    fn who_asks_for_openmetrics_gets_it() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
        assert_eq!(Flavour::accepted(prometheus), Flavour::OpenMetrics);
        for accept in ["", "*/*", "text/plain"] {
            assert_eq!(Flavour::accepted(accept), Flavour::Prometheus);
        }
    }
}
