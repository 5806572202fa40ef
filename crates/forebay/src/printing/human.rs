//! Numbers as people read and write them: sizes, counts, durations.

use std::str::FromStr;
use std::time::Duration;

use forebay_engine::MAX_PARTITIONS;

/// The most threads: more than any machine runs at once.
const MOST_THREADS: usize = 1024;

/// How times are written.
const HOW: &str = "write for example 7d, 12h, 90m, 30s, 500ms";

/// Parses a lifetime: a time such as 7d, 12h, 90m, 30s or 500ms.
pub fn parse_lifetime(text: &str) -> Result<Duration, String> {
    match parse_time(text)? {
        Duration::ZERO => Err(format!("what lives for '{text}' is never there: {HOW}")),
        time => Ok(time),
    }
}

/// Parses a time within bounds.
pub fn parse_within(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let time = parse_time(text)?;
    if (least..=most).contains(&time) {
        return Ok(time);
    }
    let bounds = [least, most].map(duration_in_days);
    Err(format!(
        "'{text}' is out of range: from {} to {}",
        bounds[0], bounds[1]
    ))
}

/// Formats a time: 30 days -> `30d`, 5 s -> `5s`.
fn duration_in_days(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds.checked_rem(86_400) {
        Some(0) if seconds > 0 => format!("{}d", seconds / 86_400),
        _ if seconds == 0 => format!("{}ms", time.as_millis()),
        _ => format!("{seconds}s"),
    }
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a time: {HOW}");
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit_ms = match unit.trim() {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "w" => 604_800_000,
        _ => return Err(wrong()),
    };
    let ms = number.checked_mul(unit_ms).ok_or_else(wrong)?;
    Ok(Duration::from_millis(ms))
}

/// Parses a count of bytes of the command line: `4096`, `64k`, `512MiB`, `2G`. Units are powers of
/// 1,024.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number
        .parse()
        .map_err(|_| format!("'{text}' is not a size: write for example 4096, 64k, 512MiB, 2G"))?;
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        other if other.starts_with(['.', ',']) => {
            return Err(format!(
                "'{text}' is no whole number: take a smaller unit, as 1536M for 1.5G"
            ));
        }
        other => return Err(format!("'{other}' is not a unit of size: use k, M, G or T")),
    };
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("{text} is more bytes than a 64-bit number holds"))
}

/// Parses a limit of bytes a second; 0 is refused, because it would never end.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        0 => Err(
            "at 0 bytes a second nothing ends: leave the option out to have no limit".to_owned(),
        ),
        bytes => Ok(bytes),
    }
}

/// Parses a size greater than 0.
pub fn parse_room(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        0 => Err("0 bytes have room for nothing".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Parses a number greater than 0.
pub fn parse_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err(format!("'{text}' is not a number above 0")),
        Ok(count) => Ok(count),
    }
}

/// Parses a number, including 0.
pub fn parse_number<T: FromStr>(text: &str) -> Result<T, String> {
    let reported = |_| format!("'{text}' is not a whole number of 0 or more");
    text.parse().map_err(reported)
}

/// Parses a number of threads.
pub fn parse_threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads @ 1..=MOST_THREADS) => Ok(threads),
        _ => Err(format!("threads are a number from 1 to {MOST_THREADS}")),
    }
}

/// Parses a number of partitions.
pub fn parse_partitions(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(partitions) if (1..=MAX_PARTITIONS).contains(&(partitions as usize)) => Ok(partitions),
        _ => Err(format!(
            "partitions are a number from 1 to {MAX_PARTITIONS}"
        )),
    }
}

/// Formats a count: 336776 -> `336,776`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a count with its noun: `1 row`, `2 rows`, `3 batches`, with separators.
pub fn counted(n: u64, noun: &str) -> String {
    let plural = match n {
        1 => "",
        _ if noun.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{} {noun}{plural}", count(n))
}

/// Formats a size: 1536 -> `1.5 KiB`.
pub fn bytes(n: u64) -> String {
    forebay_plan::draw::size(n as f64)
}

/// Formats a duration in units that fit its size: `3 ms`, `2.41 s`, `4 min 05 s`, `2 h 10 min`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 => format!("{} ms", time.as_millis()),
        1..60 => format!("{:.2} s", time.as_secs_f64()),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("64k"), Ok(65_536));
        assert_eq!(parse_bytes("512 MiB"), Ok(512 << 20));
        assert_eq!(parse_bytes("2G"), Ok(2 << 30));
        for bad in ["", "k", "1.5G", "-3", "7 parsecs", "99999999999T"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rates_and_counts_are_above_zero() {
        assert_eq!(parse_rate("1k"), Ok(1024));
        let problem = parse_rate("0").unwrap_err();
        assert!(problem.contains("no limit"), "{problem}");
        assert_eq!(
            (parse_threads("1"), parse_partitions("16384")),
            (Ok(1), Ok(16_384))
        );
        for bad in ["0", "-1", "99999999", "x"] {
            assert!(
                parse_threads(bad).is_err() && parse_partitions(bad).is_err(),
                "{bad}"
            );
        }
    }

    #[test]
    fn lifetimes_are_above_zero() {
        assert_eq!(parse_lifetime("90m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_lifetime("1ms"), Ok(Duration::from_millis(1)));
        for bad in [
            "0s",
            "0ms",
            "00w",
            "",
            "s",
            "7",
            "1.5h",
            "-1s",
            "99999999999999w",
        ] {
            let problem = parse_lifetime(bad).unwrap_err();
            assert!(problem.contains(bad) && problem.contains("7d"), "{problem}");
        }
    }

    #[test]
    fn times_have_bounds() {
        let day = Duration::from_secs(86_400);
        let parse = |text| parse_within(text, Duration::from_secs(1), 30 * day);
        assert_eq!(
            (parse("30d"), parse("1s")),
            (Ok(30 * day), Ok(day / 86_400))
        );
        for bad in ["99999d", "31d", "999ms", "0s"] {
            let problem = parse(bad).unwrap_err();
            assert!(problem.contains("from 1s to 30d"), "{problem}");
        }
    }

    #[test]
    fn counts_and_bytes_are_grouped() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(336_776), "336,776");
        assert_eq!(counted(1, "row"), "1 row");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
    }

    #[test]
    fn durations_read_well() {
        assert_eq!(duration(Duration::from_millis(2410)), "2.41 s");
        assert_eq!(duration(Duration::from_secs(245)), "4 min 05 s");
    }
}
