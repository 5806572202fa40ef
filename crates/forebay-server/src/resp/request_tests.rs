use proptest::prelude::*;

use super::super::too_long::LongCommand;
use super::*;

const LIMITS: RequestLimits = RequestLimits {
    bulk_bytes: 1 << 20,
    arguments: 1000,
    command_bytes: 4 << 20,
};

type Command = Vec<Vec<u8>>;

/// Feeds `bytes` in pieces that end at `cuts`, as a connection would.
fn read_all(bytes: &[u8], cuts: &[usize]) -> (Vec<Command>, Option<ProtocolError>) {
    let (mut parser, mut commands, mut start) = (Parser::default(), Vec::new(), 0);
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    ends.push(bytes.len());
    ends.sort_unstable();
    for end in ends {
        loop {
            match parser.advance(&bytes[start..end], &LIMITS) {
                Ok(None) => break,
                Ok(Some(len)) => {
                    let args = parser.args(&bytes[start..]);
                    commands.push(args.iter().map(<[u8]>::to_vec).collect());
                    start += len;
                }
                Err(error) => return (commands, Some(error)),
            }
        }
    }
    (commands, None)
}

fn one(bytes: &[u8]) -> Result<Option<Command>, ProtocolError> {
    match read_all(bytes, &[]) {
        (_, Some(error)) => Err(error),
        (mut commands, None) => Ok(commands.pop()),
    }
}

fn encode(commands: &[Command]) -> Vec<u8> {
    let mut out = Vec::new();
    for command in commands {
        out.extend(format!("*{}\r\n", command.len()).bytes());
        for arg in command {
            out.extend(format!("${}\r\n", arg.len()).bytes());
            out.extend(arg);
            out.extend(b"\r\n");
        }
    }
    out
}

fn words(line: &str) -> Command {
    line.split(' ')
        .map(|word| word.as_bytes().to_vec())
        .collect()
}

#[test]
fn arrays_and_lines() {
    assert_eq!(
        one(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"),
        Ok(Some(words("GET k")))
    );
    assert_eq!(one(b"GET k\r\n"), Ok(Some(words("GET k"))));
    assert_eq!(one(b"  GET   k \n"), Ok(Some(words("GET k"))));
    assert_eq!(one(b"\r\n"), Ok(Some(vec![])));
    assert_eq!(one(b"*0\r\n"), Ok(Some(vec![])));
    assert_eq!(one(b"*-1\r\n"), Ok(Some(vec![])));
    assert_eq!(one(b"*1\r\n$0\r\n\r\n"), Ok(Some(vec![vec![]])));
}

#[test]
fn quotes_of_inline_lines() {
    let quoted = one(b"ECHO \"a b\\x41\\n\\\"\" 'c\\'d\\n'\r\n");
    let expected = vec![b"ECHO".to_vec(), b"a bA\n\"".to_vec(), b"c'd\\n".to_vec()];
    assert_eq!(quoted, Ok(Some(expected)));
    assert_eq!(
        one(b"ECHO \"\"\r\n"),
        Ok(Some(vec![b"ECHO".to_vec(), vec![]]))
    );
    assert_eq!(one(b"ECHO \"abc\r\n"), Err(ProtocolError::Quotes));
    assert_eq!(one(b"ECHO \"a\"b\r\n"), Err(ProtocolError::Quotes));
}

#[test]
fn commands_that_are_too_large_are_refused_before_they_arrive() {
    let limit = LIMITS.bulk_bytes;
    assert_eq!(
        one(b"*1\r\n$1048577\r\n"),
        Err(ProtocolError::BulkLength { limit })
    );
    assert_eq!(
        one(b"*1\r\n$-1\r\n"),
        Err(ProtocolError::BulkLength { limit })
    );
    assert_eq!(
        one(b"*1001\r\n"),
        Err(ProtocolError::ArgumentCount { limit: 1000 })
    );
    assert_eq!(
        one(b"*99999999999999999999\r\n"),
        Err(ProtocolError::Number)
    );
    let mut many = b"*9\r\n".to_vec();
    for _ in 0..4 {
        many.extend(b"$1048570\r\n");
        many.extend(vec![b'x'; 1_048_570]);
        many.extend(b"\r\n");
    }
    many.extend(b"$1048570\r\n");
    assert_eq!(
        one(&many),
        Err(ProtocolError::CommandLength { limit: 4 << 20 })
    );
    assert_eq!(
        one(&vec![b'x'; MAX_INLINE_BYTES + 2]),
        Err(ProtocolError::InlineLength)
    );
}

#[test]
fn nested_arrays_and_missing_line_ends_are_refused() {
    assert_eq!(
        one(b"*1\r\n*1\r\n"),
        Err(ProtocolError::NoBulk { got: '*' })
    );
    assert_eq!(
        one(b"*1\r\n:1\r\n"),
        Err(ProtocolError::NoBulk { got: ':' })
    );
    assert_eq!(one(b"*1\r\n$1\r\nxyz"), Err(ProtocolError::NoLineEnd));
    assert_eq!(one(b"*\r\n"), Err(ProtocolError::Number));
    assert_eq!(one(b"*1\n$1\nx\n"), Err(ProtocolError::Number));
}

#[test]
fn http_is_recognised_and_get_of_a_key_is_not_http() {
    for line in [
        "POST / HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\n",
        "Host: a\r\n",
        "PUT /x HTTP/1.0\n",
    ] {
        assert_eq!(one(line.as_bytes()), Err(ProtocolError::Http), "{line}");
    }
    assert_eq!(one(b"GET /\r\n"), Ok(Some(words("GET /"))));
}

fn any_input() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        Just(b"*1\r\n".to_vec()),
        Just(b"*2\r\n".to_vec()),
        Just(b"$3\r\nGET\r\n".to_vec()),
        Just(b"$0\r\n\r\n".to_vec()),
        Just(b"PING\r\n".to_vec()),
        Just(b"\"a b\" 'c' \\x41\r\n".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..12),
    ];
    proptest::collection::vec(token, 0..12).prop_map(|tokens| tokens.concat())
}

proptest! {
    #[test]
    fn commands_are_parsed_however_they_are_divided(
        commands in proptest::collection::vec(
            proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..6), 0..6),
        cuts in proptest::collection::vec(any::<usize>(), 0..8),
    ) {
        let (read, error) = read_all(&encode(&commands), &cuts);
        prop_assert_eq!(error, None);
        prop_assert_eq!(read, commands);
    }

    #[test]
    fn bytes_give_the_same_commands_however_they_are_divided(
        bytes in any_input(),
        cuts in proptest::collection::vec(any::<usize>(), 0..8),
    ) {
        prop_assert_eq!(read_all(&bytes, &cuts), read_all(&bytes, &[]));
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        read_all(&bytes, &[]);
    }
}

/// Skips a command that arrives in pieces of `step` bytes. Returns the bytes after it.
fn rest_after_long_command(bytes: &[u8], step: usize) -> Result<Vec<u8>, ProtocolError> {
    let mut parser = Parser::default();
    let error = parser.advance(bytes, &LIMITS).expect_err("too long");
    let (start, missing) = parser
        .read_until(&error)
        .expect("the end of the command can be found");
    let mut rest = LongCommand::new(error, missing);
    let (mut at, mut come) = (start, start);
    while !rest.is_over() && come < bytes.len() {
        come = (come + step).min(bytes.len());
        at += rest.pass(&bytes[at..come])?;
    }
    assert!(rest.is_over());
    assert!(rest.answer().contains("1048576 bytes"), "{}", rest.answer());
    Ok(bytes[at..].to_vec())
}

#[test]
fn a_command_that_is_too_long_is_skipped_to_its_end() {
    let long = vec![b'$'; (1 << 20) + 1];
    let mut bytes = b"*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$1048577\r\n".to_vec();
    bytes.extend(&long);
    bytes.extend(b"\r\n$2\r\nNX\r\n*1\r\n$4\r\nPING\r\n");
    for step in [4096, 65_537, bytes.len()] {
        let behind = rest_after_long_command(&bytes, step);
        assert_eq!(behind, Ok(b"*1\r\n$4\r\nPING\r\n".to_vec()), "{step}");
    }
    let end = bytes.len();
    bytes.truncate(end - b"$2\r\nNX\r\n*1\r\n$4\r\nPING\r\n".len());
    bytes.extend(b":7\r\n");
    assert_eq!(
        rest_after_long_command(&bytes, 4096),
        Err(ProtocolError::NoBulk { got: ':' })
    );
    let endless = b"*2\r\n$3\r\nGET\r\n$536870913\r\n";
    let limit = LIMITS.bulk_bytes;
    assert_eq!(
        rest_after_long_command(endless, 64),
        Err(ProtocolError::BulkLength { limit })
    );
}
