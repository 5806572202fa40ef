//! A log record, and its formats.

use std::fmt::{self, Write as _};

use forebay_engine::{shortened, utc};
use forebay_server::EventDraft;
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

use super::LogFormat;

/// The most bytes of a text.
const TEXT_BYTES: usize = 16 << 10;

/// A logged event.
#[derive(Debug, Clone)]
pub struct Record {
    pub level: Level,
    pub unix_ms: u64,
    pub target: &'static str,
    pub message: String,
    pub fields: Map<String, Value>,
    /// The fields in the format of a text line.
    text: String,
}

impl Record {
    pub fn of(event: &Event<'_>, unix_ms: u64) -> Self {
        let metadata = event.metadata();
        let mut record = Self {
            level: *metadata.level(),
            unix_ms,
            target: metadata.target(),
            message: String::new(),
            fields: Map::new(),
            text: String::new(),
        };
        event.record(&mut record);
        record
    }

    /// Creates a warning of the log itself.
    pub fn warning(message: String, unix_ms: u64) -> Self {
        Self {
            level: Level::WARN,
            unix_ms,
            target: module_path!(),
            message,
            fields: Map::new(),
            text: String::new(),
        }
    }

    /// Returns the last of `count` equal records that were left out.
    pub fn repeated(mut self, count: u64) -> Self {
        self.put("repeated", Value::from(count), &count.to_string());
        self
    }

    /// Returns the line, with its end.
    pub fn line(&self, format: LogFormat) -> String {
        let seconds = utc(self.unix_ms);
        let time = format!(
            "{}.{:03}Z",
            seconds.trim_end_matches('Z'),
            self.unix_ms % 1000
        );
        let Self {
            level,
            target,
            message,
            fields,
            text,
            ..
        } = self;
        match format {
            LogFormat::Text => format!("{time} {level:>5} {target}: {message}{text}\n"),
            LogFormat::Json => {
                let level = level.as_str();
                let line = json!({
                    "time": time, "level": level, "target": target, "message": message, "fields": fields,
                });
                format!("{line}\n")
            }
        }
    }

    pub fn into_event(self) -> EventDraft {
        EventDraft {
            unix_ms: self.unix_ms,
            level: self.level.as_str(),
            message: self.message,
            fields: self.fields,
        }
    }

    fn put(&mut self, name: &str, value: Value, text: &str) {
        _ = write!(self.text, " {name}={text}");
        self.fields.insert(name.to_owned(), value);
    }

    fn put_text(&mut self, name: &str, value: String, text: &str) {
        match name {
            "message" => self.message = value,
            _ => self.put(name, Value::from(value), text),
        }
    }
}

impl Visit for Record {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = shortened(format!("{value:?}"), TEXT_BYTES);
        self.put_text(field.name(), text.clone(), &text);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let value = shortened(value.to_owned(), TEXT_BYTES);
        let text = format!("{value:?}");
        self.put_text(field.name(), value, &text);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), Value::from(value), &value.to_string());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), Value::from(value), &value.to_string());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field.name(), Value::from(value), &value.to_string());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), Value::from(value), &value.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_a_line_of_text_or_an_object() {
        let mut record = Record::warning("the disk is full".to_owned(), 1_795_299_304_123);
        record.put("table", Value::from("people"), "people");
        let record = record.repeated(7);
        assert_eq!(
            record.line(LogFormat::Text),
            "2026-11-21T22:15:04.123Z  WARN forebay::log::record: the disk is full table=people repeated=7\n"
        );
        let line: Value = serde_json::from_str(&record.line(LogFormat::Json)).unwrap();
        assert_eq!(line["level"], "WARN");
        assert_eq!(line["fields"], json!({"table": "people", "repeated": 7}));
        let event = record.into_event();
        assert_eq!(
            (event.level, event.message.as_str()),
            ("WARN", "the disk is full")
        );
    }
}
