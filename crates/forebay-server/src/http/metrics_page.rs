//! A page of metrics in the format that Prometheus reads.

use std::fmt::Display;

use metrics::{Key, Label};
use metrics_exporter_prometheus::LabelSet;
use metrics_exporter_prometheus::formatting::{
    write_help_line, write_metric_line, write_type_line,
};

use crate::metrics::{BUCKETS, HistogramSum, bucket_bound_us};

/// A page of metrics that is being built.
#[derive(Default)]
pub(super) struct Page {
    text: String,
}

impl Page {
    pub fn into_text(self) -> String {
        self.text
    }

    pub fn begin(&mut self, name: &str, kind: &str, help: &str) {
        write_help_line(&mut self.text, name, None, None, help);
        write_type_line(&mut self.text, name, None, None, kind);
    }

    pub fn one(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.begin(name, kind, help);
        self.line(name, &[], value);
    }

    pub fn line<V: Display>(&mut self, name: &str, labels: &[(&'static str, &str)], value: V) {
        let labels = set(name, labels);
        write_metric_line::<u64, V>(&mut self.text, name, None, &labels, None, value, None);
    }

    pub fn histogram(&mut self, name: &str, labels: &[(&'static str, &str)], sum: &HistogramSum) {
        let (labels, mut below) = (set(name, labels), 0);
        for bucket in 0..BUCKETS {
            below += sum.buckets[bucket];
            let bound = match bucket_bound_us(bucket) {
                Some(us) => format!("{}", us as f64 / 1e6),
                None => "+Inf".to_owned(),
            };
            let le = Some(("le", bound));
            write_metric_line(
                &mut self.text,
                name,
                Some("bucket"),
                &labels,
                le,
                below,
                None,
            );
        }
        let seconds = sum.sum_ns as f64 / 1e9;
        let none = None::<(&'static str, u64)>;
        write_metric_line(
            &mut self.text,
            name,
            Some("sum"),
            &labels,
            none,
            seconds,
            None,
        );
        write_metric_line(
            &mut self.text,
            name,
            Some("count"),
            &labels,
            none,
            below,
            None,
        );
    }
}

fn set(name: &str, labels: &[(&'static str, &str)]) -> LabelSet {
    let labels = labels
        .iter()
        .map(|(label, value)| Label::new(*label, (*value).to_owned()));
    let key = Key::from_parts(name.to_owned(), labels.collect::<Vec<_>>());
    LabelSet::from_key_and_global(&key, &Default::default())
}
