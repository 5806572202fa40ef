//! Parses key templates such as `{carrier}/{flight:05}`.
//!
//! Text between braces names a column; `{{` and `}}` are braces. A width after a colon pads numbers
//! with zeroes so that text order is number order. It is a minimum width: a longer number is
//! written in full. Values are written as follows:
//!
//! - integers and decimals in decimal; with a width, a negative number makes its row a bad row,
//!   since it would sort wrongly;
//! - floats only when they are whole numbers below 2^53 (a column of integers with gaps often comes
//!   as floats), written as integers; any other float makes its row a bad row;
//! - dates and times in ISO 8601, timestamps in UTC (with `Z` when the column has a zone); they
//!   have the fraction digits of the column's unit, so that text order is time order; years outside
//!   0000 to 9999 make a bad row;
//! - booleans as `true` and `false`, text as it is;
//! - binary as it is, only when it is the whole template.
//!
//! `{id:hex}` writes binary as lower-case hex digits. `{id:uuid}` writes a column of 16 bytes as a
//! UUID in its usual text, 8-4-4-4-12 lower-case digits. If a column's source says that it holds
//! UUIDs, the column has the form `uuid`. This does not apply if the column is the whole template,
//! or if the template gives another form. [`KeyTemplate::settled`] writes the form into the text.
//!
//! `{time:be}` writes a whole number, a date or a timestamp as eight bytes, big-endian, so that
//! byte order is number order. Unsigned numbers are written as they are, all others with their sign
//! bit flipped.

use std::fmt;
use std::str::FromStr;

use arrow_schema::Schema;

use crate::uuid::is_uuid;

/// An error of a text that is not a key template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error(
        "the key template '{template}' names no column: write columns in braces, as in '{{id}}'"
    )]
    NoColumn { template: String },
    #[error(
        "the key template '{template}' has a '{{' at byte {at} without its '}}' (a brace itself is written '{{{{')"
    )]
    Open { template: String, at: usize },
    #[error(
        "the key template '{template}' has a '}}' at byte {at} without its '{{' (a brace itself is written '}}}}')"
    )]
    Close { template: String, at: usize },
    #[error("the key template '{template}' has empty braces at byte {at}: name a column")]
    Empty { template: String, at: usize },
    #[error("the key template '{template}' asks for a width of {width}: 1 to 100 are possible")]
    Width { template: String, width: String },
}

/// A part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplatePart {
    Literal(String),
    Column { name: String, form: Form },
}

/// The form in which a column is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Text,
    /// With leading zeros, to this many digits.
    Padded(usize),
    /// Eight bytes whose order is that of numbers.
    BigEndian,
    /// Bytes as lower-case hex digits.
    Hex,
    /// Sixteen bytes as the text of a UUID.
    Uuid,
}

impl Form {
    /// Returns the form of that name.
    fn named(name: &str) -> Option<Self> {
        match name {
            "be" => Some(Self::BigEndian),
            "hex" => Some(Self::Hex),
            "uuid" => Some(Self::Uuid),
            _ => None,
        }
    }
}

/// A template that makes keys from columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyTemplate {
    text: String,
    parts: Vec<TemplatePart>,
}

impl KeyTemplate {
    pub fn parts(&self) -> &[TemplatePart] {
        &self.parts
    }

    /// Returns the names of the columns, each as often as it occurs.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Column { name, .. } => Some(name.as_str()),
            TemplatePart::Literal(_) => None,
        })
    }

    /// Returns the template with the form `uuid` for columns of the source that hold UUIDs, if no
    /// other form is given. This text describes the keys completely, so tables keep it.
    pub fn settled(&self, schema: &Schema) -> KeyTemplate {
        let is_uuid = |name: &str| schema.field_with_name(name).is_ok_and(is_uuid);
        let mut settled = self.clone();
        for part in &mut settled.parts {
            if let TemplatePart::Column { name, form } = part
                && *form == Form::Text
                && is_uuid(name)
            {
                *form = Form::Uuid;
            }
        }
        if settled.parts.len() == 1 || settled == *self {
            return self.clone();
        }
        settled.text = settled.parts.iter().map(TemplatePart::to_string).collect();
        settled
    }

    /// Returns whether `settled` may come from this template.
    pub fn may_settle_as(&self, settled: &KeyTemplate) -> bool {
        let same = |(mine, other): (&TemplatePart, &TemplatePart)| match (mine, other) {
            (
                TemplatePart::Column {
                    name,
                    form: Form::Text,
                },
                TemplatePart::Column {
                    name: other,
                    form: Form::Uuid,
                },
            ) => name == other,
            _ => mine == other,
        };
        self.parts.len() == settled.parts.len() && self.parts.iter().zip(&settled.parts).all(same)
    }
}

impl fmt::Display for TemplatePart {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TemplatePart::Literal(text) => {
                formatter.write_str(&text.replace('{', "{{").replace('}', "}}"))
            }
            TemplatePart::Column { name, form } => match form {
                Form::Text => write!(formatter, "{{{name}}}"),
                Form::Padded(width) => write!(formatter, "{{{name}:0{width}}}"),
                Form::BigEndian => write!(formatter, "{{{name}:be}}"),
                Form::Hex => write!(formatter, "{{{name}:hex}}"),
                Form::Uuid => write!(formatter, "{{{name}:uuid}}"),
            },
        }
    }
}

impl fmt::Display for KeyTemplate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl FromStr for KeyTemplate {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<KeyTemplate, TemplateError> {
        let template = || text.to_owned();
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(brace) = rest.find(['{', '}']) {
            let at = text.len() - rest.len() + brace;
            literal.push_str(&rest[..brace]);
            let after = &rest[brace..];
            if after.starts_with("{{") || after.starts_with("}}") {
                literal.push_str(&after[..1]);
                rest = &after[2..];
                continue;
            }
            if after.starts_with('}') {
                return Err(TemplateError::Close {
                    template: template(),
                    at,
                });
            }
            let end = after.find('}').ok_or_else(|| TemplateError::Open {
                template: template(),
                at,
            })?;
            if !literal.is_empty() {
                parts.push(TemplatePart::Literal(std::mem::take(&mut literal)));
            }
            parts.push(column(&after[1..end], text, at)?);
            rest = &after[end + 1..];
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(TemplatePart::Literal(literal));
        }
        if !parts
            .iter()
            .any(|part| matches!(part, TemplatePart::Column { .. }))
        {
            return Err(TemplateError::NoColumn {
                template: template(),
            });
        }
        Ok(KeyTemplate {
            text: template(),
            parts,
        })
    }
}

/// Parses the text between braces. A colon and digits at the end are the width; a colon and a word
/// are a form.
fn column(inside: &str, template: &str, at: usize) -> Result<TemplatePart, TemplateError> {
    let last = inside.rsplit_once(':').filter(|(name, _)| !name.is_empty());
    if let Some((name, form)) = last.and_then(|(name, word)| Some((name, Form::named(word)?))) {
        let name = name.to_owned();
        return Ok(TemplatePart::Column { name, form });
    }
    let (name, width) = match inside.rsplit_once(':') {
        Some((name, digits))
            if digits.bytes().all(|b| b.is_ascii_digit()) && !digits.is_empty() =>
        {
            (name, Some(digits))
        }
        _ => (inside, None),
    };
    if name.is_empty() {
        return Err(TemplateError::Empty {
            template: template.to_owned(),
            at,
        });
    }
    let width = width.map(|digits| match digits.parse() {
        Ok(width @ 1..=100) => Ok(Form::Padded(width)),
        _ => Err(TemplateError::Width {
            template: template.to_owned(),
            width: digits.to_owned(),
        }),
    });
    Ok(TemplatePart::Column {
        name: name.to_owned(),
        form: width.transpose()?.unwrap_or(Form::Text),
    })
}

#[cfg(test)]
mod tests {
    use arrow_schema::{DataType, Field};

    use super::*;
    use crate::uuid::with_uuid_mark;

    fn parse(text: &str) -> Result<Vec<TemplatePart>, TemplateError> {
        text.parse::<KeyTemplate>().map(|template| template.parts)
    }

    fn named(name: &str, width: Option<usize>) -> TemplatePart {
        TemplatePart::Column {
            name: name.to_owned(),
            form: width.map_or(Form::Text, Form::Padded),
        }
    }

    #[test]
    fn templates_parse() {
        assert_eq!(
            parse("{carrier}/{flight:05}").unwrap(),
            [
                named("carrier", None),
                TemplatePart::Literal("/".into()),
                named("flight", Some(5))
            ]
        );
        assert_eq!(
            parse("{{{a b:c}}}é").unwrap(),
            [
                TemplatePart::Literal("{".into()),
                named("a b:c", None),
                TemplatePart::Literal("}é".into())
            ]
        );
        assert_eq!(parse("{a:b:7}").unwrap(), [named("a:b", Some(7))]);
        let forms = [
            ("be", Form::BigEndian),
            ("hex", Form::Hex),
            ("uuid", Form::Uuid),
        ];
        for (word, form) in forms {
            let name = "t".to_owned();
            let text = format!("{{t:{word}}}");
            assert_eq!(parse(&text).unwrap(), [TemplatePart::Column { name, form }]);
        }
        assert_eq!(parse("{a:HEX}").unwrap(), [named("a:HEX", None)]);
    }

    #[test]
    fn marked_columns_are_uuids_beside_other_parts() {
        let column = |name: &str, bytes| Field::new(name, DataType::FixedSizeBinary(bytes), true);
        let mut other = column("o", 16).metadata().clone();
        let name = arrow_schema::extension::EXTENSION_TYPE_NAME_KEY;
        other.insert(name.to_owned(), "other".to_owned());
        let schema = Schema::new(vec![
            with_uuid_mark(column("u", 16)),
            with_uuid_mark(column("w", 16)),
            column("o", 16).with_metadata(other),
            with_uuid_mark(column("s", 8)),
            column("p", 16),
        ]);
        let settled = |text: &str| text.parse::<KeyTemplate>().unwrap().settled(&schema);
        for (text, reported) in [
            ("{u}", "{u}"),
            ("x{u}", "x{u:uuid}"),
            ("{{u}}{u}/{w}/{u}", "{{u}}{u:uuid}/{w:uuid}/{u:uuid}"),
            ("{u:hex}/{w}", "{u:hex}/{w:uuid}"),
            ("{p:05}{o:be}{w}", "{p:05}{o:be}{w:uuid}"),
            ("{o}/{s}/{p}", "{o}/{s}/{p}"),
        ] {
            let (given, settled) = (text.parse::<KeyTemplate>().unwrap(), settled(text));
            assert_eq!(settled, reported.parse().unwrap(), "{text}");
            assert!(given.may_settle_as(&settled), "{text}");
            assert_eq!(settled.may_settle_as(&given), text == reported, "{text}");
        }
    }

    #[test]
    fn mistakes_are_reported_apart() {
        assert!(matches!(parse("abc"), Err(TemplateError::NoColumn { .. })));
        assert!(matches!(parse(""), Err(TemplateError::NoColumn { .. })));
        assert!(matches!(
            parse("a{b"),
            Err(TemplateError::Open { at: 1, .. })
        ));
        assert!(matches!(
            parse("{a}}"),
            Err(TemplateError::Close { at: 3, .. })
        ));
        assert!(matches!(parse("{}"), Err(TemplateError::Empty { .. })));
        assert!(matches!(parse("{:5}"), Err(TemplateError::Empty { .. })));
        assert!(matches!(parse("{a:0}"), Err(TemplateError::Width { .. })));
        assert!(matches!(parse("{a:101}"), Err(TemplateError::Width { .. })));
        let message = parse("a{b").unwrap_err().to_string();
        assert!(message.contains("'a{b' has a '{' at byte 1"), "{message}");
    }
}
