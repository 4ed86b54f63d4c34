//! The formats of the metrics page, and the conversion from OpenMetrics to Prometheus' text format 0.0.4.
//!
//! The library writes OpenMetrics only. Most tools besides Prometheus itself read only the older text format.

/// A format of the metrics page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsFormat {
    /// Prometheus' text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl MetricsFormat {
    /// Returns the content type of a page in this format.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Converts a page of OpenMetrics to the text format.
///
/// Samples are the same in both formats. The text format names families as their samples, and it has no infos, no units
/// and no end marker.
pub(super) fn to_text_format(page: &str) -> String {
    let mut text = String::with_capacity(page.len());
    let mut help = "";
    for line in page.lines() {
        if let Some(meaning) = line.strip_prefix("# HELP ") {
            // The name depends on the type, which is on the next line.
            help = meaning.split_once(' ').map_or("", |(_, meaning)| meaning);
        } else if let Some((family, kind)) = line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' ')) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            for part in [
                "# HELP ",
                family,
                suffix,
                " ",
                help,
                "\n# TYPE ",
                family,
                suffix,
                " ",
                kind,
                "\n",
            ] {
                text.push_str(part);
            }
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_named_as_their_samples() {
        let rows = [
            (
                "# HELP a Meaning.\n# TYPE a counter\na_total{x=\"# TYPE\"} 1\n",
                "# HELP a_total Meaning.\n# TYPE a_total counter\na_total{x=\"# TYPE\"} 1\n",
            ),
            (
                "# HELP a Two words.\n# TYPE a info\na_info{v=\"1\"} 1\n",
                "# HELP a_info Two words.\n# TYPE a_info gauge\na_info{v=\"1\"} 1\n",
            ),
            (
                "# HELP a_s M.\n# TYPE a_s histogram\n# UNIT a_s s\na_s_sum 0.0\na_s_bucket{le=\"+Inf\"} 0\n",
                "# HELP a_s M.\n# TYPE a_s histogram\na_s_sum 0.0\na_s_bucket{le=\"+Inf\"} 0\n",
            ),
            (
                "# HELP a M.\n# TYPE a unknown\na 1\n",
                "# HELP a M.\n# TYPE a untyped\na 1\n",
            ),
            (
                "# HELP a M.\n# TYPE a gauge\na -1\n# EOF\n",
                "# HELP a M.\n# TYPE a gauge\na -1\n",
            ),
            ("", ""),
        ];
        for (page, wanted) in rows {
            assert_eq!(to_text_format(page), wanted);
        }
    }
}
