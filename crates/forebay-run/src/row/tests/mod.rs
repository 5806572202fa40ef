mod properties;
mod texts;
