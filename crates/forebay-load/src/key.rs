//! Key templates: `{carrier}/{flight:05}`.
//!
//! Text between braces names a column; `{{` and `}}` are braces. A width after a colon pads numbers
//! with zeroes so that text order is number order; it is a least width: a longer number is written
//! whole. How values are written:
//!
//! - integers and decimals in decimal; with a width, a negative number makes its row a bad row, since it
//!   would sort wrongly;
//! - floats only when they are whole numbers below 2^53 (a column of integers with gaps often comes as
//!   floats), written as integers; any other float makes its row a bad row;
//! - dates and times in ISO 8601, timestamps in UTC (with `Z` when the column has a zone) with the
//!   fraction digits of the column's unit, so that text order is time order; years outside 0000 to 9999
//!   make a bad row;
//! - booleans as `true` and `false`, text as it is;
//! - binary as it is, only when it is the whole template.
//!
//! `{time:be}` writes a whole number, a date or a timestamp as eight bytes, big-endian, so that the order of
//! bytes is that of numbers: unsigned ones as they are, all others with their sign bit turned.

use std::fmt;
use std::str::FromStr;

/// Why a text is not a key template.
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

/// A piece of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Literal(String),
    Column { name: String, form: Form },
}

/// How a column is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Text,
    /// With zeros in front, to so many digits.
    Padded(usize),
    /// Eight bytes whose order is that of numbers.
    BigEndian,
}

/// How keys are made of columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyTemplate {
    text: String,
    parts: Vec<Part>,
}

impl KeyTemplate {
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The names of the columns, each as often as it stands.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Column { name, .. } => Some(name.as_str()),
            Part::Literal(_) => None,
        })
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
                parts.push(Part::Literal(std::mem::take(&mut literal)));
            }
            parts.push(column(&after[1..end], text, at)?);
            rest = &after[end + 1..];
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Literal(literal));
        }
        if !parts.iter().any(|part| matches!(part, Part::Column { .. })) {
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

/// Parses what is between braces; a colon and digits at the end are the width, a colon and `be` ask for bytes.
fn column(inside: &str, template: &str, at: usize) -> Result<Part, TemplateError> {
    let (name, width) = match inside.rsplit_once(':') {
        Some((name, "be")) if !name.is_empty() => {
            return Ok(Part::Column {
                name: name.to_owned(),
                form: Form::BigEndian,
            });
        }
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
    Ok(Part::Column {
        name: name.to_owned(),
        form: width.transpose()?.unwrap_or(Form::Text),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<Part>, TemplateError> {
        text.parse::<KeyTemplate>().map(|template| template.parts)
    }

    fn named(name: &str, width: Option<usize>) -> Part {
        Part::Column {
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
                Part::Literal("/".into()),
                named("flight", Some(5))
            ]
        );
        assert_eq!(
            parse("{{{a b:c}}}é").unwrap(),
            [
                Part::Literal("{".into()),
                named("a b:c", None),
                Part::Literal("}é".into())
            ]
        );
        assert_eq!(parse("{a:b:7}").unwrap(), [named("a:b", Some(7))]);
        let form = Form::BigEndian;
        let name = "t".to_owned();
        assert_eq!(parse("{t:be}").unwrap(), [Part::Column { name, form }]);
    }

    #[test]
    fn mistakes_are_told_apart() {
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
